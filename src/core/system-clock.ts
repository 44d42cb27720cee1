import { readFileSync } from 'node:fs';
import type { Clock, Random } from './time.ts';

const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';
/** Longest delay that setTimeout takes; a longer one would fire at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * The name of this boot: the kernel's, written the same whichever source gave it. Where there is none, one and the same
 * for every boot: a stored moment to come is then of an earlier boot and counts as now, and one that is past is no
 * younger than it seems. An estimate by the wall clock would forget all limits when that clock is put right.
 * `fromEnvironment`: `TILLSYNC_BOOT_ID`, which a unit sets to systemd's `%b` when its sandbox hides the kernel's file.
 */
export function bootIdFrom(readKernelFile: () => string, fromEnvironment = ''): string {
  let fromKernel = '';
  try {
    fromKernel = readKernelFile();
  } catch {
    // Hidden by a sandbox, or another kernel.
  }
  return normalised(fromKernel) || normalised(fromEnvironment) || 'unnamed';
}

function normalised(bootId: string): string {
  return bootId.trim().toLowerCase().replaceAll('-', '');
}

/** The machine's own time. `monotonicMs` is the kernel's monotonic clock, shared by all processes of a boot. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => Number(process.hrtime.bigint()) / 1e6,
  bootId: bootIdFrom(() => readFileSync(BOOT_ID_FILE, 'utf8'), process.env.TILLSYNC_BOOT_ID),
  async sleep(ms, signal) {
    for (let restMs = ms; restMs > 0 && !signal?.aborted; restMs -= TIMER_MAX_MS) {
      await timerEnd(Math.min(restMs, TIMER_MAX_MS), signal);
    }
  },
};

function timerEnd(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end, { once: true });
  });
}

/** The machine's own chance. */
export const systemRandom: Random = { next: () => Math.random() };
