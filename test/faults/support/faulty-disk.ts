import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Workplace } from '../../support/workplace.ts';

/** Faults of `faulty-disk.c`, which describes each one's argument. */
export type DiskFault =
  | 'sync-fails'
  | 'write-fails'
  | 'io-fails'
  | 'sync-slow'
  | 'kill-at-write'
  | 'kill-after-sync'
  | 'kill-at-step'
  | 'wall-offset';

/** Begins and ends faults in the processes started at this workplace. Both take effect at once. */
export interface FaultyDisk {
  begin(fault: DiskFault, what: string): void;
  end(fault: DiskFault): void;
}

let library: string | undefined;

/** Loads the library into every process that the workplace starts from now on. Needs a C compiler. */
export function faultyDisk(place: Pick<Workplace, 'directory' | 'env'>): FaultyDisk {
  library ??= build();
  const directory = path.join(place.directory, 'faults');
  mkdirSync(directory, { mode: 0o755 });
  Object.assign(place.env, { LD_PRELOAD: library, FAULTS: directory });
  return {
    begin: (fault, what) => writeFileSync(path.join(directory, fault), what),
    end: (fault) => rmSync(path.join(directory, fault)),
  };
}

function build(): string {
  const compiler = ['/usr/bin/gcc', '/usr/bin/cc', '/usr/bin/clang'].find((each) => existsSync(each));
  if (compiler === undefined) {
    throw new Error('These tests make the disk fail by a small C library; install gcc to run them.');
  }
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-faulty-disk-'));
  process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
  const built = path.join(directory, 'faulty-disk.so');
  const source = path.join(import.meta.dirname, 'faulty-disk.c');
  execFileSync(compiler, ['-shared', '-fPIC', '-O1', '-o', built, source, '-ldl']);
  return built;
}
