/** Tests src/support/backup.ts and src/support/restore.ts. */

import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it } from 'vitest';
import { openMirror } from '../../src/app/mirror.ts';
import { openState } from '../../src/app/state.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { newKey } from '../../src/link/nats.ts';
import { observation } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { commandsAt } from './invoke.ts';

/** Makes a store with one order; with branches, a hub that they have joined. */
async function storeWith(branches: string[]) {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-backup-'));
  const storage = path.join(directory, 'storage');
  const config = path.join(directory, 'config.toml');
  const hub = '[hub]\nnats = "nats://127.0.0.1:4222"\npublic_url = "tls://hub.test:4222"\n';
  writeFileSync(
    config,
    `[platform]\nbase_url = "https://platform.test"\n[storage]\ndirectory = "${storage}"\n` +
      (branches.length > 0 ? hub : '') +
      branches.map((name) => `[[branches]]\nexternal_id = "${name}"\n`).join(''),
  );
  const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
  await mirror.save([{ kind: 'order', observation: observation('poll', sampleNotification(1)) }]);
  await mirror.close();
  const state = openState({ path: path.join(storage, 'state.db'), clock: systemClock, role: 'hub' });
  const joinedAt = new Date(systemClock.nowMs()).toISOString();
  const joined = branches.map(async (branch) => ({
    branch,
    name: branch,
    publicKey: (await newKey()).publicKey,
    joinedAt,
    subsidiaryId: null,
  }));
  const copy = { serverConfig: null, branches: await Promise.all(joined), closed: [] };
  state.hub.takeOver(copy, systemClock.nowMs());
  state.close();
  const commands = commandsAt({ env: { PATH: process.env.PATH ?? '', TILLSYNC_CONFIG: config } });
  return { file: path.join(directory, 'tillsync.tar.gz'), storage, ...commands };
}

it('backup writes one file for its user alone, says what is in it, and overwrites none unasked', async () => {
  const { file, run, json } = await storeWith([]);
  const { code, document } = await json(['backup', file]);
  expect(code).toBe(0);
  expect(document).toMatchObject({ file, bytes: statSync(file).size, hasTokens: false, inboxFault: null });
  expect(document).toMatchObject({ mirror: { orders: 1 }, hasConfig: true });
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const again = await run(['backup', file]);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('--force');
  expect((await run(['backup', file, '--force'])).stdout).toMatch(/orders: +1, newest event 1\b/);
});

it.each([
  { branches: ['B1'], isLost: false, tells: 'The branches of this machine were kept' },
  { branches: ['B1', 'B2'], isLost: true, tells: "Branches that don't have to join again: B1, B2." },
  { branches: [], isLost: false, tells: undefined },
])('restore tells what became of branches: $branches, lost: $isLost', async ({ branches, isLost, tells }) => {
  const { file, storage, json } = await storeWith(branches);
  expect((await json(['backup', file])).code).toBe(0);
  if (isLost) rmSync(storage, { recursive: true });
  const { code, document } = await json(['restore', file]);
  expect(code).toBe(0);
  const advice: string[] = document.advice;
  const told = advice.filter((line) => /branches/i.test(line) && !line.includes('nats-server'));
  expect(told).toEqual(tells === undefined ? [] : [expect.stringContaining(tells)]);
});

it('after a restore no settled change gets a number that a reader may have seen', async () => {
  const { file, storage, json } = await storeWith([]);
  /** Settles a new change and returns its number in the feed of settled changes. */
  const settle = async (sku: string) => {
    const mirror = openMirror({ path: path.join(storage, 'mirror.db'), clock: systemClock });
    const insert = `INSERT INTO _outbox (kind, target, conflict_key, body, fields, state, created_at, settled_at,
        priority, queue_seq, basis, source, version)
      SELECT 'stock', @target, @target, '{}', '[]', 'done', @at, @at, 1, version, 'mirror', 'http', version
      FROM (SELECT coalesce(max(version), 0) + 1 AS version FROM _outbox)`;
    const numbered = 'SELECT settled_seq FROM outbox WHERE target = ?';
    await mirror.write((db) => void db.prepare(insert).run({ target: sku, at: '2026-03-01T08:00:00.000Z' }));
    const seq = mirror.read((db) => db.prepare<[string], number>(numbered).pluck().get(sku)) ?? 0;
    await mirror.close();
    return seq;
  };
  const before = await settle('sku:1');
  expect((await json(['backup', file])).code).toBe(0);
  const lost = await settle('sku:2');
  expect(lost).toBeGreaterThan(before);
  expect((await json(['restore', file])).code).toBe(0);
  const third = await settle('sku:3');
  expect(third).toBeGreaterThan(lost);
  // Also if the same backup is restored once more.
  expect((await json(['restore', file])).code).toBe(0);
  expect(await settle('sku:4')).toBeGreaterThan(third);
});

it('restore names a file that is not there, and touches nothing', async () => {
  const { file, run } = await storeWith([]);
  const { code, stderr } = await run(['restore', file]);
  expect([code, stderr]).toEqual([1, expect.stringContaining(`There is no backup ${file}.`)]);
});
