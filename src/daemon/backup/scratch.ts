import { mkdirSync, readdirSync, rmSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../../domain/errors.ts';
import { isActing } from '../storage/storage-user.ts';

const NAME = '.backup-';
const ROOM_TO_SPARE_BYTES = 64 * 1024 * 1024;

/** Where a copy of the mirror lies until it is packed. */
export interface Scratch {
  directory: string;
  clear(): void;
}

/**
 * `beside` the file that is written; but where root acts as the owner of the storage directory, in that: he may not
 * write where root may. Throws `storage-full` where a copy has no room there.
 */
export function scratchFor(beside: string, storage: string, mirror: string): Scratch {
  if (!isActing()) return { directory: beside, clear: () => {} };
  for (const name of readdirSync(storage)) {
    if (name.startsWith(NAME)) rmSync(join(storage, name), { recursive: true, force: true });
  }
  refuseWithoutRoom(storage, mirror);
  const directory = join(storage, `${NAME}${process.pid}`);
  mkdirSync(directory, { mode: 0o700 });
  return { directory, clear: () => rmSync(directory, { recursive: true, force: true }) };
}

function refuseWithoutRoom(storage: string, mirror: string): void {
  const needed = ['', '-wal']
    .map((suffix) => statSync(mirror + suffix, { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, bytes) => sum + bytes, ROOM_TO_SPARE_BYTES);
  const { bavail, bsize } = statfsSync(storage);
  if (bavail * bsize >= needed) return;
  const mib = (bytes: number) => `${Math.ceil(bytes / 1024 / 1024)} MiB`;
  throw new TillsyncError(
    'storage-full',
    `${storage} has room for ${mib(bavail * bsize)}; the copy for the backup needs ${mib(needed)} there. Nothing was written.`,
    { hint: 'Free some space, and back up again.', retryable: false },
  );
}
