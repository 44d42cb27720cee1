import { readFileSync } from 'node:fs';
import type { Clock, Random } from './time.ts';

const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';
/** Longest delay of setTimeout; a longer one would fire at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Returns the boot's id, in the same form from either source, or `unnamed` if there is none. Then all boots count as
 * one: a stored time in the future counts as now, and limits wait at least as long as needed. A name made from the
 * wall clock would change when that clock is set, and drop all limits. `fromEnvironment` is `TILLSYNC_BOOT_ID`, which
 * a unit sets to systemd's `%b` if its sandbox hides the kernel's file.
 */
export function bootIdFrom(readKernelFile: () => string, fromEnvironment = ''): string {
  let fromKernel = '';
  try {
    fromKernel = readKernelFile();
  } catch {
    // A sandbox hides the file, or the kernel is another one.
  }
  return normalised(fromKernel) || normalised(fromEnvironment) || 'unnamed';
}

function normalised(bootId: string): string {
  return bootId.trim().toLowerCase().replaceAll('-', '');
}

/** The machine's time. `monotonicMs` is the kernel's monotonic clock, common to all processes of a boot. */
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
