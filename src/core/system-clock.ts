import { readFileSync } from 'node:fs';
import type { Clock, Random } from './time.ts';

const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';
/** Longest delay that setTimeout accepts. A longer one would end at once. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/**
 * Returns the normalised id of the boot from the kernel, else from `fromEnvironment`, else `unnamed`. `fromEnvironment`
 * is `TILLSYNC_BOOT_ID`, which a unit sets to systemd's `%b` if its sandbox hides the kernel's file.
 */
export function bootIdFrom(readKernelFile: () => string, fromEnvironment = ''): string {
  let fromKernel = '';
  try {
    fromKernel = readKernelFile();
  } catch {
    // A sandbox hides the file, or the kernel is not Linux.
  }
  // With `unnamed`, all boots are treated as one, and stored times in the future are set to now, so limits wait long
  // enough. An id made from the wall clock would change when that clock is set, and all limits would be lost.
  return normalised(fromKernel) || normalised(fromEnvironment) || 'unnamed';
}

function normalised(bootId: string): string {
  return bootId.trim().toLowerCase().replaceAll('-', '');
}

/**
 * Clocks of the machine. `monotonicMs` is the kernel's monotonic clock, which is the same for all processes of a boot.
 */
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

/** Random numbers of the machine, which are not repeatable. */
export const systemRandom: Random = { next: () => Math.random() };
