import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../src/core/log.ts';
import { GUARDS_OFF } from '../../src/outbox/intake/guards.ts';
import { InboxLoop } from '../../src/outbox/intake/inbox-loop.ts';
import { PassedOver, WAITING_MAX } from '../../src/outbox/sending/call-plan.ts';
import { order, outgoing, product, SEND_ALL } from './outbox-fixture.ts';
import { done } from './swept-outbox.ts';
import { insert, pos, rowsOf, tempInbox } from './temp-inbox.ts';
import { fillLine } from './waiting-line.ts';

type InboxLoopOptions = ConstructorParameters<typeof InboxLoop>[0];

const GOODS = Array.from({ length: 8 }, (_, i) =>
  product(`p${i}`, `Product ${i}`, [{ sku: `${i}`, stocks: { s1: [`A${i}`, 50], s2: [`B${i}`, 50] } }]),
);

/** Makes a store of two branches; the first has room for only `room` more changes. */
function almostFull(room: number) {
  const out = outgoing();
  out.db.pragma('synchronous = OFF');
  out.sweep(GOODS);
  fillLine(out.db, 's1', WAITING_MAX - room);
  out.restart();
  const taken = () =>
    out.db
      .prepare(
        "SELECT target, json_extract(body, '$.qty') AS qty FROM _outbox WHERE sku NOT GLOB 'w*' ORDER BY change_id",
      )
      .all() as { target: string; qty: number }[];
  const send = () => {
    const { callId, items } = out.dispatcher.claim('stock', 1, SEND_ALL);
    out.dispatcher.settle(callId ?? 0, done(items));
  };
  return { ...out, out, taken, send };
}

it('rows of a branch whose line is full stay in a shared inbox; those of others and their acknowledgements are taken', () => {
  const { out, taken } = almostFull(1);
  order(out, 'o1', 'B1', [['A5', 1]]);
  order(out, 'o2', 'B2', [['B5', 1]]);
  const { path: file, inbox } = tempInbox();
  const db = pos(file);
  for (const [id, qty] of [
    ['A0', 1],
    ['A1', 1],
    ['B0', 7],
    ['A2', 0],
    ['A1', 0],
    ['A0', 3],
  ] as const)
    insert(db, id, qty);
  db.exec("INSERT INTO order_acks (order_id) VALUES ('o1'), ('o2'), ('unknown')");
  const passed = new PassedOver();
  const report = out.inbox.ingest(inbox.read(), GUARDS_OFF, passed);
  inbox.remove(rowsOf({ ...report.taken, alive: [], more: false }));
  out.inbox.forget(report.taken);
  // A1 = 0 stays in the inbox behind the skipped A1 = 1. Otherwise A1 = 1 would be copied later and undo A1 = 0.
  expect(taken()).toEqual([
    { target: 'sku:0@s1', qty: 3 },
    { target: 'sku:0@s2', qty: 7 },
    { target: 'sku:2@s1', qty: 0 },
  ]);
  expect(report).toMatchObject({ acks: [{ orderId: 'o2', state: 'new' }], full: { code: 'rate-limited' } });
  expect(inbox.read()).toMatchObject({
    changes: [{ value: { externalId: 'A1', qty: 1 } }, { value: { externalId: 'A1', qty: 0 } }],
    acks: [{ orderId: 'o1' }, { orderId: 'unknown' }],
  });
  expect(out.db.prepare("SELECT count(*) FROM _seen WHERE kind = 'inbox-row'").pluck().get()).toBe(0);
});

it('InboxLoop gets past thousands of rows of one full branch, and comes back for them once there is room', {
  tags: ['bulk'],
}, async () => {
  const { out, taken, send } = almostFull(0);
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-shared-inbox-'));
  mkdirSync(path.join(directory, 'inbox'));
  const file = path.join(directory, 'inbox', 'inbox.db');
  const waiting: number[] = [];
  const stores = {
    write: async <T>(use: (own: typeof out) => T) => out.db.transaction(() => use(out))(),
    read: <T>(use: (own: typeof out) => T) => use(out),
  };
  const inbox = new InboxLoop({
    path: file,
    stores,
    clock: out.clock,
    guards: GUARDS_OFF,
    holdBack: false,
    log: silentLog,
    onWaiting: ({ rows }: { rows: number }) => waiting.push(rows),
    onTaken: () => {},
  } as unknown as InboxLoopOptions);
  onTestFinished(async () => {
    await inbox.close();
    rmSync(directory, { recursive: true, force: true });
  });
  await inbox.ingest();
  const db = pos(file);
  db.pragma('busy_timeout = 5000');
  const many = 'WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)';
  db.exec(`${many} INSERT INTO stock_changes (external_id, qty) SELECT 'A' || (i % 5), i FROM n`);
  insert(db, 'B0', 7);
  const passThrough = async () => {
    for (;;) {
      const { more, full } = await inbox.ingest();
      expect(full?.code).toBe('rate-limited');
      if (!more) return;
    }
  };
  await passThrough();
  expect(taken()).toEqual([{ target: 'sku:0@s2', qty: 7 }]);
  insert(db, 'B1', 8);
  await passThrough();
  expect(taken().at(-1)).toEqual({ target: 'sku:1@s2', qty: 8 });
  expect(waiting.at(-1)).toBe(2_501);
  send();
  await passThrough();
  expect(taken()).toHaveLength(2);
  await out.clock.advance(60_000);
  await passThrough();
  // The oldest row is copied first, together with all newer rows of the same stock.
  const ofFull = taken().slice(2);
  expect(new Set(ofFull.map(({ target }) => target))).toEqual(new Set(['sku:1@s1']));
  expect(ofFull.at(-1)?.qty).toBe(2_496);
  expect(db.prepare('SELECT count(*) FROM stock_changes').pluck().get()).toBe(2_000);
});
