/** Tests src/support/damaged-mirror.ts with a real process: a mirror whose first page is damaged. */

import { closeSync, openSync, readdirSync, readFileSync, readSync, rmSync, writeSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { notify } from '../faults/support/fault-place.ts';
import { openWorkplace, until } from '../support/workplace.ts';

const ANSWERS_WITHIN_MS = 60_000;

it.each([
  { what: 'the name of the format', at: 3, keeps: true },
  { what: 'the size of a page', at: 16, keeps: true },
  { what: 'the root of the list of tables', at: 100, keeps: false },
])('a mirror with a damaged byte in $what is set aside, told red, and made anew', async ({ at, keeps }) => {
  const place = await openWorkplace(31);
  onTestFinished(() => place.close());
  const { control } = place.sandbox;
  for (let i = 0; i < 5; i++) control.createOrder({}, { hidden: true });
  const first = await place.run();
  await until('all orders are here', () => place.differences().length === 0);
  const [{ id } = { id: '' }] = control.orders().map(({ internalOrderId }) => ({ id: internalOrderId }));
  const inbox = new Database(path.join(place.storage, 'inbox', 'inbox.db'), { timeout: 5_000 });
  inbox.prepare('INSERT INTO order_acks (order_id) VALUES (?)').run(id);
  inbox.close();
  const file = path.join(place.storage, 'mirror.db');
  const ask = <T>(sql: string) => {
    const db = new Database(file, { readonly: true });
    try {
      return db.prepare<[], T>(sql).all();
    } finally {
      db.close();
    }
  };
  const acked = () => ask<{ id: string }>('SELECT order_id AS id FROM _order_acks').map((row) => row.id);
  const newest = () =>
    ask<{ seq: number }>("SELECT seq FROM sqlite_sequence WHERE name = 'order_events'")[0]?.seq;
  await until('the acknowledgement is here', () => acked().includes(String(id)));
  const seqBefore = newest() ?? 0;
  await first.end('SIGTERM');

  const handle = openSync(file, 'r+');
  const byte = Buffer.alloc(1);
  readSync(handle, byte, 0, 1, at);
  writeSync(handle, Buffer.from([(byte[0] ?? 0) ^ 0xff]), 0, 1, at);
  closeSync(handle);
  const damaged = readFileSync(file);

  const beganMs = performance.now();
  const next = await place.run();
  expect(await notify(place, control.orders()[0])).toBe(200);
  expect(performance.now() - beganMs).toBeLessThan(ANSWERS_WITHIN_MS);
  const kept = readdirSync(place.storage).filter((name) => /^mirror\.db\.damaged-\w+$/.test(name));
  expect(kept).toHaveLength(1);
  const keptAt = path.join(place.storage, kept[0] ?? '');
  expect(readFileSync(keptAt).equals(damaged)).toBe(true);
  await until('mirror and platform are equal', () => place.differences().length === 0);
  expect(acked().includes(String(id))).toBe(keeps);
  expect(newest()).toBeGreaterThan(seqBefore);

  const alarm = () =>
    ask<{ message: string }>("SELECT message FROM alarms WHERE key = 'mirror.damaged'")[0]?.message;
  await until('it is told', () => alarm()?.includes(keptAt) === true);
  const { stdout, stderr } = await place.command('status', '--json');
  const { findings } = JSON.parse(stdout).verdict ?? JSON.parse(stdout);
  expect(findings, stderr).toContainEqual(expect.objectContaining({ code: 'mirror.damaged', level: 'red' }));
  await next.end('SIGTERM');
  // It stays over a restart, until a person has moved the file away.
  const third = await place.run();
  expect(alarm()).toContain(keptAt);
  await third.end('SIGTERM');
  for (const name of readdirSync(place.storage)) {
    if (name.startsWith('mirror.db.damaged-')) rmSync(path.join(place.storage, name));
  }
  await place.run();
  await until('the alarm is over', () => alarm() === undefined);
});
