import { readdirSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { gauge, type MetricFamily } from '../health/metrics-format.ts';

const SAMPLE_EVERY_MS = 100;

/** Metrics of this process, under the usual names of Prometheus clients. */
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
      gauge('process_start_time_seconds', 'Start of the process since the epoch.', this.#startedAtSeconds),
      gauge('process_resident_memory_bytes', 'Resident memory.', rss),
      gauge('process_open_fds', 'Open file descriptors.', openFiles()),
      gauge('nodejs_heap_size_total_bytes', 'Size of the JavaScript heap.', heapTotal),
      gauge('nodejs_heap_size_used_bytes', 'Used part of the JavaScript heap.', heapUsed),
      gauge('nodejs_external_memory_bytes', 'Memory of objects bound to JavaScript.', external),
      ...this.#eventLoop(),
    ];
  }

  close(): void {
    this.#delay?.disable();
  }

  /**
   * Returns the delay of the event loop since the last scrape. Measuring starts with the first scrape, so that it
   * costs nothing without Prometheus.
   */
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
    const lag = (name: string, help: string, nanoseconds: number) =>
      gauge(
        `nodejs_eventloop_lag_${name}_seconds`,
        help,
        Math.max(0, nanoseconds / 1e9 - SAMPLE_EVERY_MS / 1000),
      );
    return [
      lag('mean', 'Mean delay of the event loop since the last scrape.', mean),
      lag('p99', '99th percentile of it.', p99),
      lag('max', 'Longest delay of the event loop since the last scrape.', max),
    ];
  }
}

function counted(name: string, help: string, value: number): MetricFamily {
  return { ...gauge(name, help, value), type: 'counter' };
}

function openFiles(): number | null {
  try {
    return readdirSync('/proc/self/fd').length;
  } catch {
    return null;
  }
}
