import { execFileSync } from 'node:child_process';
import { closeSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Workplace } from '../../support/workplace.ts';

type Place = Pick<Workplace, 'storage' | 'close'>;

/** A separate disk that is mounted at the storage directory until the workplace is closed. Needs root. */
export interface SmallDisk {
  /** Uses up all free space. */
  fill(): void;
  /** Frees the space that `fill` used. */
  free(): void;
}

export function mountSmallDisk(place: Place, megabytes: number): SmallDisk {
  const directory = place.storage;
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=2750`, 'tmpfs', directory]);
  beforeClose(place, () => void execFileSync('umount', ['-l', directory]));
  const filler = path.join(directory, 'filler');
  return {
    fill() {
      const file = openSync(filler, 'a');
      for (const size of [65_536, 4_096, 1]) {
        try {
          for (;;) writeSync(file, Buffer.alloc(size));
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        }
      }
      closeSync(file);
    },
    free: () => rmSync(filler),
  };
}

/** Mounts an ext4 that turns read-only at the first error, like a failing disk. */
export function mountFailingDisk(
  place: Workplace,
  size = '32M',
): { fail(): void; die(): void; repair(): void } {
  const directory = place.storage;
  const image = path.join(tmpdir(), `tillsync-image-${process.pid}`);
  execFileSync('truncate', ['-s', size, image]);
  execFileSync('mkfs.ext4', ['-q', '-F', image]);
  const device = execFileSync('losetup', ['-f', '--show', image], { encoding: 'utf8' }).trim();
  const mount = () => execFileSync('mount', ['-o', 'errors=remount-ro', device, directory]);
  const unmount = () => execFileSync('umount', [directory]);
  mount();
  beforeClose(place, () => {
    execFileSync('umount', ['-l', directory]);
    execFileSync('losetup', ['-d', device]);
    rmSync(image);
  });
  return {
    fail: () =>
      writeFileSync(`/sys/fs/ext4/${path.basename(device)}/trigger_fs_error`, 'a fault of the disk'),
    /** Removes the device's bytes, so that each read and write fails and only cached data is left. */
    die() {
      execFileSync('truncate', ['-s', '0', image]);
      execFileSync('losetup', ['--set-capacity', device]);
      writeFileSync('/proc/sys/vm/drop_caches', '1');
    },
    repair() {
      unmount();
      execFileSync('sh', ['-c', `fsck.ext4 -fp ${device} > /dev/null || [ $? -eq 1 ]`]);
      mount();
    },
  };
}

function beforeClose(place: Place, action: () => void): void {
  const { close } = place;
  place.close = () => {
    action();
    return close();
  };
}
