import { readdirSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { gauge, type MetricFamily, plainGauge } from '../../local/metrics/metric-family.ts';

const SAMPLE_EVERY_MS = 100;

/** The figures of this process under the names that every Prometheus client uses. */
export class ProcessMetrics {
  readonly #startedAtSeconds = Date.now() / 1000 - process.uptime();
  #delay: ReturnType<typeof monitorEventLoopDelay> | undefined;

  families(): MetricFamily[] {
    const { user, system } = process.cpuUsage();
    const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
    return [
      counted('process_cpu_user_seconds_total', 'User CPU time spent.', user / 1e6),
      counted('process_cpu_system_seconds_total', 'System CPU time spent.', system / 1e6),
      counted('process_cpu_seconds_total', 'User and system CPU time spent.', (user + system) / 1e6),
      plainGauge(
        'process_start_time_seconds',
        'Start of the process since the epoch.',
        this.#startedAtSeconds,
      ),
      plainGauge('process_resident_memory_bytes', 'Resident memory.', rss),
      plainGauge('process_open_fds', 'Open file descriptors.', openFiles()),
      plainGauge('nodejs_heap_size_total_bytes', 'Size of the JavaScript heap.', heapTotal),
      plainGauge('nodejs_heap_size_used_bytes', 'Used part of the JavaScript heap.', heapUsed),
      plainGauge('nodejs_external_memory_bytes', 'Memory of objects bound to JavaScript.', external),
      ...this.#eventLoop(),
    ];
  }

  close(): void {
    this.#delay?.disable();
  }

  /** Since the last scrape. It is watched from the first one on: where nobody scrapes it costs nothing. */
  #eventLoop(): MetricFamily[] {
    if (!this.#delay) {
      this.#delay = monitorEventLoopDelay({ resolution: SAMPLE_EVERY_MS });
      this.#delay.enable();
      return [];
    }
    const { count, max, mean } = this.#delay;
    if (count === 0) return [];
    const p99 = this.#delay.percentile(99);
    this.#delay.reset();
    const lag = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - SAMPLE_EVERY_MS / 1000);
    return [
      plainGauge(
        'nodejs_eventloop_lag_mean_seconds',
        'Mean delay of the event loop since the last scrape.',
        lag(mean),
      ),
      plainGauge('nodejs_eventloop_lag_p99_seconds', '99th percentile of it.', lag(p99)),
      plainGauge(
        'nodejs_eventloop_lag_max_seconds',
        'Longest delay of the event loop since the last scrape.',
        lag(max),
      ),
    ];
  }
}

function counted(name: string, help: string, value: number): MetricFamily {
  return { ...gauge(name, help, [{ labels: {}, value }]), type: 'counter' };
}

function openFiles(): number | null {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return null;
  }
}
