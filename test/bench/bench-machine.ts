import { closeSync, fdatasyncSync, openSync, rmSync, writeSync } from 'node:fs';
import { cpus, release, tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import { median } from './bench-result.ts';

/** Returns, in one line, the facts about this machine on which the figures depend. */
export function describeMachine(): string {
  const cores = cpus();
  const memory = `${Math.round(totalmem() / 2 ** 30)} GiB`;
  const sync = `fdatasync ${syncMs().toFixed(2)} ms in ${tmpdir()}`;
  return `${cores.length} × ${cores[0]?.model ?? 'unknown'}, ${memory}, Linux ${release()}, ${sync}, Node ${process.version}`;
}

const SYNCS = 100;

/** Returns the median time in ms to append a page to a file and sync it. Durable figures depend most on this time. */
function syncMs(): number {
  const file = path.join(tmpdir(), `tillsync-bench-sync-${process.pid}`);
  const descriptor = openSync(file, 'w');
  try {
    const page = Buffer.alloc(4096, 1);
    const times = Array.from({ length: SYNCS }, () => {
      const beganMs = performance.now();
      writeSync(descriptor, page);
      fdatasyncSync(descriptor);
      return performance.now() - beganMs;
    });
    return median(times);
  } finally {
    closeSync(descriptor);
    rmSync(file);
  }
}
