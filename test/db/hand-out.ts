import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';
import Database from 'better-sqlite3';
import { systemClock } from '../../src/core/system-clock.ts';

/**
 * This script stores the databases of this version for handed-out.test.ts, as a demo leaves them when it is killed
 * after some seconds. Run it before a new migration is added: node test/db/hand-out.ts
 */
const HANDED_OUT = fileURLToPath(new URL('handed-out/', import.meta.url));
const DEMO_MS = 9_000;

const place = mkdtempSync(path.join(tmpdir(), 'tillsync-hand-out-'));
try {
  const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
  const demo = spawn(process.execPath, [main, 'demo'], {
    env: { ...process.env, TMPDIR: place },
    stdio: 'ignore',
  });
  const ended = once(demo, 'exit');
  await systemClock.sleep(DEMO_MS);
  demo.kill('SIGKILL');
  await ended;
  mkdirSync(HANDED_OUT, { recursive: true });
  for (const file of readdirSync(place, { recursive: true, encoding: 'utf8' })) {
    const kind = /(?:^|\/)(mirror|state)\.db$/.exec(file)?.[1];
    if (kind !== undefined) keep(kind, path.join(place, file));
  }
} finally {
  rmSync(place, { recursive: true, force: true });
}

function keep(kind: string, file: string): void {
  const db = new Database(file);
  db.pragma('journal_mode = DELETE');
  db.exec('VACUUM');
  const version = db.pragma('user_version', { simple: true });
  db.close();
  const bytes = readFileSync(file);
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: 11,
    [constants.BROTLI_PARAM_LGWIN]: 24,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  const name = `${kind}-${String(version).padStart(4, '0')}.db.br`;
  writeFileSync(path.join(HANDED_OUT, name), brotliCompressSync(bytes, { params }));
  process.stdout.write(`${name}\n`);
}
