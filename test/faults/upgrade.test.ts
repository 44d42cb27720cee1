import { cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { buildProgram, LATER, type Program, runCommand } from '../slow/crash/daemon-life.ts';
import { limitMs } from '../support/shared-config.ts';
import type { Workplace } from '../support/workplace.ts';
import { integrityOf, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

/** What both schemas have. */
const KEPT = [
  'SELECT order_id, code, status, seq, payload FROM orders ORDER BY order_id',
  'SELECT * FROM order_events ORDER BY seq',
  'SELECT * FROM _order_acks ORDER BY order_id',
  'SELECT * FROM _outbox ORDER BY change_id',
  'SELECT * FROM _stock_counts ORDER BY sku, subsidiary_id',
  'SELECT * FROM _ledger_orders ORDER BY order_id',
];

let later: Program;
beforeAll(async () => {
  later = await buildProgram({ mirror: LATER.mirror });
}, limitMs(120_000));
afterAll(() => later.remove());

let place: Workplace;
afterEach(() => place.close());

function dump(file: string): unknown[] {
  const db = new Database(file, { readonly: true });
  try {
    return KEPT.map((sql) => db.prepare(sql).all());
  } finally {
    db.close();
  }
}

/** Makes a store with orders, an acknowledgement and a count, and returns a copy of its mirror's files. */
async function storeOfToday(): Promise<string> {
  expect(await place.command('sync', 'catalog')).toMatchObject({ code: 0 });
  const [stock] = rowsOf<{ sku: string; branch: string }>(
    place,
    'SELECT sku, subsidiary_id AS branch FROM stocks ORDER BY sku LIMIT 1',
  );
  const { sku = '', branch = '' } = stock ?? {};
  const count = ['stock', 'set', '--sku', sku, '--subsidiary-id', branch, '--qty', '41', '--wait'];
  expect(await place.command(...count)).toMatchObject({ code: 0 });
  for (let i = 0; i < 3; i++) {
    place.sandbox.control.createOrder({ subsidiaryId: branch, items: [{ sku: Number(sku), qty: 1 }] });
  }
  expect(await place.command('sync', 'orders')).toMatchObject({ code: 0 });
  const [order] = rowsOf<{ order_id: string }>(place, 'SELECT order_id FROM orders LIMIT 1');
  expect(await place.command('order', 'ack', order?.order_id ?? '')).toMatchObject({ code: 0 });
  const old = path.join(place.directory, 'old');
  mkdirSync(old);
  for (const name of readdirSync(place.storage).filter((each) => each.startsWith('mirror.db'))) {
    cpSync(path.join(place.storage, name), path.join(old, name));
  }
  return old;
}

it(
  'an upgrade killed at any step leaves the old schema or the new one with every row, and is done by the next start',
  async () => {
    place = await openFaultPlace();
    const old = await storeOfToday();
    const before = dump(path.join(old, 'mirror.db'));
    expect(before.map((rows) => (rows as unknown[]).length > 0)).toEqual(KEPT.map(() => true));
    const disk = faultyDisk(place);
    const mirror = path.join(place.storage, 'mirror.db');
    // The command upgrades the files, because it opens them for writing. It changes nothing else, because no change has
    // the number 999.
    const upgrade = () => runCommand(later.start(['outbox', 'retry', '999'], place.env));
    const seen = { old: 0, new: 0 };
    let step = 1;
    for (let isKilled = true; isKilled; step += step < 10 ? 1 : Math.ceil(step / 8)) {
      for (const name of readdirSync(place.storage).filter((each) => each.startsWith('mirror.db'))) {
        rmSync(path.join(place.storage, name));
      }
      cpSync(old, place.storage, { recursive: true });
      disk.begin('kill-at-step', `${step} mirror.db`);
      isKilled = (await upgrade()).code === null;
      disk.end('kill-at-step');
      const applied = rowsOf(place, 'SELECT name FROM _schema_migrations').length;
      expect([1, 2]).toContain(applied);
      seen[applied === 2 ? 'new' : 'old'] += 1;
      expect(integrityOf(place), `step ${step}`).toBe('ok');
      expect(dump(mirror), `step ${step}`).toEqual(before);
      for (const name of readdirSync(place.storage).filter((each) => each.endsWith('.before-upgrade'))) {
        expect(dump(path.join(place.storage, name)), `copy at step ${step}`).toEqual(before);
      }
      if (!isKilled) break;
      expect(await upgrade()).toMatchObject({ code: 1 });
      expect(rowsOf(place, 'SELECT count(*) AS n FROM _orders WHERE of_later = order_id')).toEqual(
        rowsOf(place, 'SELECT count(*) AS n FROM later'),
      );
      expect(dump(mirror), `after step ${step}`).toEqual(before);
    }
    expect(step).toBeGreaterThan(10);
    expect(seen.old).toBeGreaterThan(5);
    expect(seen.new).toBeGreaterThan(0);
  },
  limitMs(300_000),
);
