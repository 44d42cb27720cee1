import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { openConnection } from '../../src/db/mirror-connection.ts';
import { order, outgoing } from '../outbox/outbox-fixture.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { limitMs } from '../support/shared-config.ts';
import { TAKINGS_SCHEMA, takingsMirror } from './takings-mirror.ts';
import { stepThrough } from './upgrade-steps.ts';

const HOLDING = { skipUnchanged: true, holdBack: true, sendAsIs: false };
const UPGRADE = fileURLToPath(new URL('./upgrade-process.ts', import.meta.url));
const MIGRATIONS = readdirSync(new URL('../../src/db/mirror/migrations/', import.meta.url)).length;

/**
 * Queries of what the POS and people submitted and what the platform answered, in columns of the old and the new
 * schema.
 */
const FACTS = [
  `SELECT change_id, target, body, state, attempts, message, version, held_guard, call_id, sent_qty, created_at, settled_at
     FROM outbox ORDER BY change_id`,
  'SELECT order_id, acked_at, source FROM order_acks ORDER BY order_id',
  'SELECT * FROM order_events ORDER BY seq',
  'SELECT order_id, status, seq, store_external_id, updated_at, payload FROM orders ORDER BY order_id',
  'SELECT order_id, line, product_external_id, product_name, quantity, product_price FROM order_items ORDER BY order_id, line',
  'SELECT sku, subsidiary_id, counted_qty, counted_seq, counted_version, refused_version, call_qty FROM stock_counts ORDER BY sku',
  'SELECT * FROM stocks ORDER BY sku',
  'SELECT * FROM stock_safety',
];

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'tillsync-takings-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

function readMirror(path: string): { applied: number; check: unknown; facts: unknown[] } {
  const db = new Database(path, { readonly: true });
  try {
    return {
      applied: Number(db.prepare('SELECT count(*) FROM schema_migrations').pluck().get()),
      check: db.pragma('integrity_check', { simple: true }),
      facts: FACTS.map((sql) => db.prepare(sql).all()),
    };
  } finally {
    db.close();
  }
}

/**
 * Opens the mirror as the daemon does at its start. `send` makes the next call and returns its quantities by target.
 */
function start(path: string) {
  const db = openConnection({ path, readonly: false, group: undefined });
  const out = outgoing(db);
  const reclaimed = out.calls.reclaim();
  const send = () => {
    const { callId, items } = out.calls.claim('stock', 100, HOLDING);
    const outcomes = items.map(({ changeId }) => ({ changeId, state: 'done' as const }));
    if (callId !== null) out.calls.settle(callId, outcomes);
    return Object.fromEntries(items.map(({ target, body }) => [target, 'qty' in body && body.qty]));
  };
  while (out.calls.catchUp({ holdBack: true }));
  return { db, out, reclaimed, send };
}

/**
 * Quantities of the first call. The interrupted call of sku 12 is sent again. Sku 15 has a waiting count of 15, less an
 * order of 2 and a safety stock of 1.
 */
const FIRST_CALL = { 'sku:12@s1': 10, 'sku:15@s1': 12 };

test('a store whose orders were booked whole loses nothing in the upgrade and goes on where it was', () => {
  const path = join(directory(), 'mirror.db');
  takingsMirror(path);
  const before = readMirror(path);
  expect(before.applied).toBe(TAKINGS_SCHEMA);
  const { db, out, reclaimed, send } = start(path);
  onTestFinished(() => void db.close());
  expect(reclaimed).toBe(1);
  expect(readMirror(`${path}.before-upgrade`)).toEqual(before);
  expect(send()).toEqual(FIRST_CALL);
  expect(send()).toEqual({});
  expect(out.queries.list({ state: 'held', limit: 9 }).map(({ target }) => target)).toEqual(['sku:13@s1']);
  expect(out.queries.list({ state: 'rejected', limit: 9 }).map(({ target }) => target)).toEqual([
    'sku:14@s1',
  ]);

  const count = (sku: string, qty: number) => out.accept('stock', [{ externalId: `E${sku}`, qty }]);
  // An unbooked order is subtracted from the next count too; a booked order is not.
  count('10', 20);
  count('11', 21);
  count('14', 24);
  expect(send()).toEqual({ 'sku:10@s1': 18, 'sku:11@s1': 21, 'sku:14@s1': 24 });
  // The acknowledgement adds back what was subtracted, because the last count was taken after the order.
  out.reservations.acknowledge(['o10'], 'http');
  expect(send()).toEqual({ 'sku:10@s1': 20 });
  order(out, 'o12', 'B1', [['E12', 2]], 'cancel');
  const [held] = out.queries.list({ state: 'held', limit: 1 });
  out.decisions.release({ changeId: held?.changeId ?? 0 });
  expect(send()).toEqual({ 'sku:12@s1': 12, 'sku:13@s1': 0 });
  // The order was acknowledged before it arrived, so it is booked as soon as it arrives.
  order(out, 'o99', 'B1', [['E11', 3]]);
  expect(
    db.prepare("SELECT count(*) FROM order_acks WHERE order_id = 'o99' AND seq IS NOT NULL").pluck().get(),
  ).toBe(0);
  while (out.calls.catchUp({ holdBack: true }));
  expect(db.prepare("SELECT branch, seq FROM order_acks WHERE order_id = 'o99'").get()).toMatchObject({
    branch: 'B1',
  });
});

/**
 * Checks that the mirror has every fact in the old or in the new schema, and that the next start sends the same
 * quantities as after an upgrade without interruption.
 */
function expectWhole(path: string, before: ReturnType<typeof readMirror>, what: string): 'old' | 'new' {
  const { applied, check, facts } = readMirror(path);
  expect([TAKINGS_SCHEMA, MIGRATIONS], what).toContain(applied);
  expect({ check, facts }, what).toEqual({ check: 'ok', facts: before.facts });
  if (existsSync(`${path}.before-upgrade`))
    expect(readMirror(`${path}.before-upgrade`), what).toEqual(before);
  const { db, reclaimed, send } = start(path);
  try {
    expect({ reclaimed, sent: [send(), send()] }, what).toEqual({ reclaimed: 1, sent: [FIRST_CALL, {}] });
  } finally {
    db.close();
  }
  expect(readMirror(path).applied, what).toBe(MIGRATIONS);
  return applied === MIGRATIONS ? 'new' : 'old';
}

/** Copies the mirror's present files into a directory. */
function copyOf(path: string, to: string): string {
  for (const suffix of ['', '-wal', '.before-upgrade', '.before-upgrade.part']) {
    if (existsSync(path + suffix)) cpSync(path + suffix, join(to, `mirror.db${suffix}`));
  }
  return join(to, 'mirror.db');
}

test('an upgrade that ends before any of its statements is done by the next start, with nothing lost', {
  tags: ['bulk'],
  timeout: limitMs(60_000),
}, () => {
  const old = join(directory(), 'mirror.db');
  takingsMirror(old);
  const before = readMirror(old);

  // A killed process leaves its files as they are, so a copy of the files before each statement stands for a kill
  // there.
  const path = copyOf(old, directory());
  const left: string[] = [];
  const steps = stepThrough(
    () => void left.push(copyOf(path, directory())),
    () => openConnection({ path, readonly: false, group: undefined }).close(),
  );
  left.push(copyOf(path, directory()));
  expect(steps).toBeGreaterThan(80);
  const seen = left.map((each, i) => expectWhole(each, before, `before statement ${i + 1}`));
  expect(new Set(seen)).toEqual(new Set(['old', 'new']));

  const random = seededRandom(Number(process.env.TILLSYNC_SEED));
  for (let kills = 0; kills < 5; kills += 1) {
    const at = 1 + Math.floor(random.next() * steps);
    const killed = copyOf(old, directory());
    const { signal } = spawnSync(process.execPath, [UPGRADE, killed, String(at)]);
    expect(signal).toBe('SIGKILL');
    expectWhole(killed, before, `killed before statement ${at}`);
  }
});
