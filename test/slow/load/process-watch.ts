import { readdirSync, readFileSync, statSync } from 'node:fs';
import { request } from 'undici';
import { systemClock } from '../../../src/core/system-clock.ts';

interface Sample {
  residentMib: number;
  walMib: number;
  openFiles: number;
}

export interface WatchReport {
  residentMib: { first: number; middle: number; last: number };
  walMibMax: number;
  openFilesMax: number;
  /** Longest delay of the daemon's event loop, by its own metrics. */
  loopGapMs: number;
  /** 99th percentile of the delay, the worst of all scrapes. */
  loopP99Ms: number;
}

const MIB = 1024 * 1024;
const SCRAPE_EVERY = 5;

/** Measures a daemon's memory, open files and mirror log each second, and reads its metrics every five seconds. */
export class ProcessWatch {
  readonly #pid: number;
  readonly #wal: string;
  readonly #localUrl: string;
  readonly #samples: Sample[] = [];
  readonly #stopping = new AbortController();
  #loopGapMs = 0;
  #loopP99Ms = 0;
  #over: Promise<void> = Promise.resolve();

  constructor({ pid, mirror, localUrl }: { pid: number; mirror: string; localUrl: string }) {
    this.#pid = pid;
    this.#wal = `${mirror}-wal`;
    this.#localUrl = localUrl;
  }

  start(): void {
    this.#over = this.#run();
  }

  async end(): Promise<WatchReport> {
    this.#stopping.abort();
    await this.#over;
    const third = Math.floor(this.#samples.length / 3);
    const part = (n: number) => median(this.#samples.slice(n * third, (n + 1) * third));
    return {
      residentMib: { first: part(0), middle: part(1), last: part(2) },
      walMibMax: Math.max(...this.#samples.map(({ walMib }) => walMib)),
      openFilesMax: Math.max(...this.#samples.map(({ openFiles }) => openFiles)),
      loopGapMs: this.#loopGapMs,
      loopP99Ms: this.#loopP99Ms,
    };
  }

  walMib(): number {
    return (statSync(this.#wal, { throwIfNoEntry: false })?.size ?? 0) / MIB;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let n = 0; !signal.aborted; n++) {
      this.#samples.push({
        residentMib: residentMib(this.#pid),
        walMib: this.walMib(),
        openFiles: readdirSync(`/proc/${this.#pid}/fd`).length,
      });
      if (n % SCRAPE_EVERY === 0) await this.#scrape();
      await systemClock.sleep(1_000, signal);
    }
  }

  async #scrape(): Promise<void> {
    const { body } = await request(`${this.#localUrl}/metrics`);
    const text = await body.text();
    const ms = (name: string) => 1_000 * Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? 0);
    this.#loopGapMs = Math.max(this.#loopGapMs, ms('nodejs_eventloop_lag_max_seconds'));
    this.#loopP99Ms = Math.max(this.#loopP99Ms, ms('nodejs_eventloop_lag_p99_seconds'));
  }
}

/** Returns the resident memory of a process. */
export function residentMib(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}

function median(samples: readonly Sample[]): number {
  const sorted = samples.map((sample) => sample.residentMib).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}
