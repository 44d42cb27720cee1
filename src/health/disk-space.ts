/** Of the file system that holds the storage directory, as `statfs` tells: what this user may still write. */
export interface DiskSpace {
  freeBytes: number;
  totalBytes: number;
}

/**
 * - `ok`: there is room
 * - `low`: free some today
 * - `full`: what comes in soon can no longer be kept, or cannot already
 */
export interface DiskVerdict {
  level: 'ok' | 'low' | 'full';
  /** How the status page and `doctor` name it; null when all is well. */
  code: 'storage.low' | 'storage.full' | null;
  /** One sentence: how much is free. */
  message: string;
}

export const DISK_FULL_BYTES = 50 * 1024 ** 2;
export const DISK_LOW_BYTES = 500 * 1024 ** 2;
export const DISK_LOW_SHARE = 0.05;
/** A twentieth of a large disk is more than tillsync fills in years. */
const LOW_SHARE_MAX_BYTES = 5 * 1024 ** 3;

/** Whether the disk has room for what comes in: low below 500 MiB or 5 %, full below 50 MiB. */
export function diskVerdict({ freeBytes, totalBytes }: DiskSpace): DiskVerdict {
  const message = `${formatBytes(freeBytes)} of ${formatBytes(totalBytes)} are free.`;
  if (freeBytes < DISK_FULL_BYTES) return { level: 'full', code: 'storage.full', message: `Only ${message}` };
  const share = Math.min(totalBytes * DISK_LOW_SHARE, LOW_SHARE_MAX_BYTES);
  if (freeBytes < Math.max(DISK_LOW_BYTES, share)) {
    return { level: 'low', code: 'storage.low', message: `Only ${message}` };
  }
  return { level: 'ok', code: null, message };
}

/** Bytes as a person says them: `812 MiB`, `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit > 2 && value < 100 ? 1 : 0;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
