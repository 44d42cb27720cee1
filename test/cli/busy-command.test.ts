/** Tests src/cli/branch.ts. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import type { Clock } from '../../src/core/time.ts';
import { beginHub } from '../../src/link/hub-feed.ts';
import { invoke } from './invoke.ts';

let directory: string;
let env: Record<string, string>;

beforeEach(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-busy-'));
  const file = path.join(directory, 'config.toml');
  writeFileSync(
    file,
    `[platform]
base_url = "http://127.0.0.1:9"
[storage]
directory = "${directory}"
[webhook]
enabled = false
[hub]
nats = "nats://127.0.0.1:9"
[[branches]]
external_id = "B1"`,
  );
  env = { TILLSYNC_CONFIG: file };
  // Makes the databases.
  expect(await invoke(['branch', 'list'], { env })).toMatchObject({ code: 0 });
});

afterEach(() => rmSync(directory, { recursive: true, force: true }));

/** Holds the lock of state.db, as a daemon in a long transaction does. */
function lockState(): () => void {
  const other = new Database(path.join(directory, 'state.db'));
  other.exec('BEGIN IMMEDIATE');
  return () => {
    if (!other.open) return;
    other.exec('ROLLBACK');
    other.close();
  };
}

/** Makes a clock on which a sleep takes no real time. `onSleep` is called with the sum of all sleeps. */
function leaping(onSleep: (sleptMs: number) => void): Clock {
  let sleptMs = 0;
  return {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + sleptMs,
    sleep: async () => {
      sleptMs += 1_000;
      onSleep(sleptMs);
    },
  };
}

test('branch close waits for state.db while the daemon writes there', async () => {
  const unlock = lockState();
  const closed = await invoke(['branch', 'close', 'B1', '--json'], { env, clock: leaping(unlock) });
  expect(closed.code, closed.stderr).toBe(0);
  expect(JSON.parse(closed.stdout)).toEqual({ branch: 'B1', closed: true });
});

test('a command that finds a database locked for too long says to type it again, for nothing else tries it', async () => {
  const waits: number[] = [];
  const unlock = lockState();
  const clock = leaping((sleptMs) => waits.push(sleptMs));
  const refused = await invoke(['branch', 'close', 'B1', '--json'], { env, clock });
  unlock();
  expect(refused.code).not.toBe(0);
  expect(waits.at(-1)).toBeGreaterThanOrEqual(9_000);
  const hint = expect.stringMatching(/^What the command had done stays done\. Type it again;/);
  expect(JSON.parse(refused.stdout)).toMatchObject({ error: { code: 'storage-busy', hint } });
  expect(refused.stderr).not.toMatch(/tried again by itself/);
  const { stdout } = await invoke(['branch', 'list', '--json'], { env });
  expect(JSON.parse(stdout)).toMatchObject({ closed: [] });
});

test('branch assign gives nothing to a closed branch, and says how to open it again', async () => {
  const mirror = new Database(path.join(directory, 'mirror.db'));
  const known = { branch: 'B1', name: 'B1', externalId: 'B1', subsidiaryId: null, mayPrice: false };
  beginHub(mirror, [known], systemClock.nowMs());
  mirror.close();
  expect(await invoke(['branch', 'close', 'B1'], { env })).toMatchObject({ code: 0 });
  for (const words of [
    ['--store', 'sub-9'],
    ['--order', '64f0c2a9e1'],
  ]) {
    const refused = await invoke(['branch', 'assign', 'B1', ...words, '--json'], { env });
    expect(JSON.parse(refused.stdout), words.join(' ')).toMatchObject({
      error: {
        code: 'usage',
        message: 'Branch B1 is closed. Nothing was changed.',
        hint: expect.stringMatching(/^To open it again: .* branch invite B1$/),
      },
    });
  }
});
