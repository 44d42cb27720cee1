import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DiskSpace } from '../../domain/health/disk-space.ts';

/**
 * Of the disk that holds `directory`, or would hold it once it is made: what an ordinary user may still write.
 * null where the system does not tell.
 */
export function storageSpace(directory: string): DiskSpace | null {
  for (let at = directory; ; at = dirname(at)) {
    try {
      const { bavail, blocks, bsize } = statfsSync(at);
      return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
    } catch {
      if (at === dirname(at)) return null;
    }
  }
}
