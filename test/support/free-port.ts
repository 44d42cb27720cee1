import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { freePort as anyFreePort } from '../../src/demo/sandbox-platform.ts';

/** One directory for all test runs of the machine; TMPDIR may differ between them. */
const RESERVED = '/tmp/tillsync-test-ports';

/**
 * Returns a free port that no other running test process gets, because a test may start its daemon on the port much
 * later, and again and again.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await anyFreePort();
    if (reserve(port)) return port;
  }
}

function reserve(port: number): boolean {
  if (mkdirSync(RESERVED, { recursive: true }) !== undefined) chmodSync(RESERVED, 0o1777);
  const file = path.join(RESERVED, String(port));
  try {
    writeFileSync(file, String(process.pid), { flag: 'wx' });
    return true;
  } catch {
    return isLeft(file) && take(file);
  }
}

/** Returns whether the process that reserved the port has ended. */
function isLeft(file: string): boolean {
  try {
    process.kill(Number(readFileSync(file, 'utf8')), 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}

function take(file: string): boolean {
  try {
    writeFileSync(file, String(process.pid));
    return true;
  } catch {
    // The port was reserved by another Unix user.
    return false;
  }
}
