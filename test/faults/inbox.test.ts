import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, statSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { NODE, ROOT, until, type Workplace } from '../support/workplace.ts';
import { lastOk, openFaultPlace, rowsOf } from './support/fault-place.ts';
import { faultyDisk } from './support/faulty-disk.ts';

const ROWS = 3_000;
/** A POS with so small a cache that SQLite writes most of its transaction to the file long before the commit. */
const POS = `
  const db = new (require(${JSON.stringify(path.join(ROOT, 'node_modules/better-sqlite3'))}))(process.argv[1]);
  db.pragma('cache_size = 1');
  const insert = db.prepare("INSERT INTO stock_changes (external_id, qty, reference) VALUES ('A-1001-1', ?, ?)");
  db.exec('BEGIN IMMEDIATE');
  for (let i = 1; i <= ${ROWS}; i++) insert.run(i, 'r'.repeat(200));
  console.log('inserted');
  setTimeout(() => { db.exec('COMMIT'); process.exit(0); }, Number(process.argv[2]));`;

let place: Workplace;
let inbox: string;

beforeEach(async () => {
  place = await openFaultPlace();
  inbox = path.join(place.storage, 'inbox', 'inbox.db');
});
afterEach(() => place.close());

async function run() {
  const daemon = await place.run();
  await until('the catalogue is swept', () => lastOk(place, 'catalog.sweep') !== null);
  await until('the inbox is there', () => existsSync(inbox));
  return daemon;
}

async function insertAll(commitAfterMs: number): Promise<ChildProcess> {
  const child = spawn(NODE, ['-e', POS, inbox, String(commitAfterMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  return child;
}

const taken = () =>
  rowsOf<{ n: number }>(place, 'SELECT count(*) + coalesce(sum(replaced), 0) AS n FROM outbox')[0]?.n;
const onPlatform = () => place.sandbox.control.stockOf(1001, 'sub-1');

describe('a POS that dies', () => {
  it('in the middle of an insert hands over nothing of it, and the next one everything', async () => {
    await run();
    const before = onPlatform();
    const empty = statSync(inbox).size;
    const dying = await insertAll(60_000);
    expect(statSync(inbox).size).toBeGreaterThan(empty + 100_000);
    expect(existsSync(`${inbox}-journal`)).toBe(true);
    dying.kill('SIGKILL');
    await once(dying, 'exit');
    await until('it was rolled back', () => !existsSync(`${inbox}-journal`));
    await systemClock.sleep(700);
    expect(taken()).toBe(0);
    expect(onPlatform()).toBe(before);
    const living = await insertAll(0);
    await once(living, 'exit');
    await until('all is taken in', () => taken() === ROWS);
    await until('the last one is there', () => onPlatform() === ROWS);
  });
});

describe('tillsync that dies', () => {
  it('between the copy of an inserted change and its removal applies it once', async () => {
    const disk = faultyDisk(place);
    const daemon = await run();
    const { control } = place.sandbox;
    disk.begin('kill-after-sync', 'doc-4711');
    const db = new Database(inbox);
    db.exec("INSERT INTO stock_changes (external_id, qty, reference) VALUES ('A-1001-1', 41, 'doc-4711')");
    await until('it died', () => daemon.child.signalCode === 'SIGKILL');
    const waiting = () => db.prepare<[], number>('SELECT count(*) FROM stock_changes').pluck().get();
    expect(waiting()).toBe(1);
    expect(taken()).toBe(1);
    disk.end('kill-after-sync');
    await run();
    await until('the inbox is empty', () => waiting() === 0);
    await until('it arrived', () => onPlatform() === 41);
    db.close();
    await systemClock.sleep(700);
    expect(taken()).toBe(1);
    expect(rowsOf(place, "SELECT * FROM _seen WHERE kind = 'inbox-row'")).toEqual([]);
    const calls = [...control.calls('product.stock.put'), ...control.calls('product.stock.batch')];
    expect(calls).toHaveLength(1);
  });
});
