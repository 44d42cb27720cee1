/** Tests src/hooks/prepared-orders.ts and its part of src/hooks/hook-loop.ts, in a whole store with a real receiver. */

import { closeSync, openSync, rmSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { HookSettings, PreparationMessage } from '../../src/hooks/hook.ts';
import { cursorOf, skipWaiting, statusOf } from '../../src/hooks/hook-cursors.ts';
import {
  decideWaiting,
  Preparations,
  preparationsFrom,
  waitingPreparations,
} from '../../src/hooks/prepared-orders.ts';
import { writeBackup } from '../../src/support/backup.ts';
import { differentialState } from '../../src/support/backup-files.ts';
import { readDifferential, writeDifferential } from '../../src/support/differential.ts';
import { restoreBackup } from '../../src/support/restore.ts';
import { observation, openTestMirror } from '../orders/open-test-mirror.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type StoreRig, storeRig } from '../support/store-rig.ts';
import { takeOn } from '../support/take-on-role.ts';
import { type EventReceiver, eventReceiver, hook, until } from './event-receiver.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const STEP_MS = 5 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
/** The sandbox makes one order in ten a scheduled one. */
const UNSCHEDULED = { isScheduled: false };
const KITCHEN = ['order.prepare', 'order.changed', 'order.undone'] as const;

function kitchen(name: string, changes: Partial<HookSettings>): HookSettings {
  return hook(name, { events: KITCHEN, ...changes });
}

/** Makes a store whose hooks a test may change between two starts. */
function storeWith(hooks: HookSettings[]): StoreRig {
  return storeRig({
    lookEveryMs: 20 * SECOND_MS,
    config: (config) => ({
      ...config,
      hooks,
      orders: { ...config.orders, poll: '*/2 * * * *', timezone: 'America/Santiago' },
      branches: [{ subsidiaryId: 'sub-1', externalId: 'B1' }, { externalId: 'B2' }],
    }),
  });
}

async function announce(rig: StoreRig, daemon: Daemon, ...orders: Record<string, unknown>[]): Promise<void> {
  for (const order of orders) expect(await rig.announce(daemon, order)).toBe(200);
}

const at = (rig: StoreRig, inMs: number) => new Date(rig.clock.nowMs() + inMs).toISOString();

/** An order that is placed now. */
function placed(rig: StoreRig, number: number, changes: Record<string, unknown> = {}) {
  return sampleNotification(number, { status: 'payment-approved', createdAt: at(rig, 0), ...changes });
}

const messages = ({ received }: EventReceiver) =>
  received.map(({ event }) => event as unknown as PreparationMessage);
const said = (receiver: EventReceiver) =>
  messages(receiver).map(({ event, order }) => `${order?.code} ${event.split('.')[1]}`);

/** Lets the loops look a few times, so that what they would send is sent. */
async function settle(rig: StoreRig, ms = 10 * SECOND_MS): Promise<void> {
  for (let passedMs = 0; passedMs < ms; passedMs += STEP_MS) {
    await rig.clock.advance(STEP_MS);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** Starts the daemon and lets its hooks begin. */
async function started(rig: StoreRig): Promise<Daemon> {
  const daemon = await rig.daemon();
  await settle(rig);
  return daemon;
}

it('looks at thousands of orders without holding up the process, and at none that left the house', async () => {
  const { mirror } = openTestMirror();
  const settings = kitchen('kitchen', {});
  const context = { nowMs: Date.parse('2026-01-15T15:00:00Z'), timezone: 'America/Santiago', branches: [] };
  const save = async (from: number, status: string) => {
    const all = Array.from({ length: 100 }, (_, i) => sampleNotification(from + i, { status }));
    await mirror.save(
      all.map((order) => ({ kind: 'order' as const, observation: observation('webhook', order) })),
    );
  };
  await save(0, 'inProcess');
  const after = { seq: 0, orderSeq: 0, newsFrom: null, all: true, at: '2026-01-15T15:00:00.000Z' };
  await mirror.write((db) => decideWaiting(db, settings, after, context));
  let [reads, inARow, most] = [0, 0, 0];
  const counted = {
    write: mirror.write.bind(mirror),
    read<T>(action: (db: Database.Database) => T): T {
      reads += 1;
      inARow += 1;
      most = Math.max(most, inARow);
      return mirror.read(action);
    },
  };
  let isOver = false;
  const turn = () => {
    inARow = 0;
    if (!isOver) setImmediate(turn);
  };
  turn();
  const decide = () =>
    new Preparations(counted, settings).decideNext({ orderSeq: 0, newsFrom: null }, context, after.at);
  expect(await decide()).toBe(false);
  expect(reads).toBeGreaterThan(100);
  expect(most).toBeLessThan(30);
  const before = reads;
  await save(100, 'dispatched');
  expect(await decide()).toBe(false);
  expect(reads - before).toBe(before);
  isOver = true;
});

it('of a customer who is removed no digest is left, and a change of the lines is still told', async () => {
  const { mirror } = openTestMirror();
  const settings = kitchen('kitchen', {});
  const context = { nowMs: Date.parse('2026-01-15T15:00:00Z'), timezone: 'America/Santiago', branches: [] };
  const sample = sampleNotification(1, { status: 'inProcess' });
  const [line] = sample.items as Record<string, unknown>[];
  const save = (changes: Record<string, unknown>) =>
    mirror.save([{ kind: 'order', observation: observation('webhook', { ...sample, ...changes }) }]);
  const decide = () => {
    const after = { seq: 0, orderSeq: 0, newsFrom: null, all: true, at: '2026-01-15T15:00:00.000Z' };
    return mirror.write((db) => decideWaiting(db, settings, { ...after, seq: 100 }, context));
  };
  const rows = <T>(sql: string) => mirror.read((db) => db.prepare<[], T>(sql).all());
  const told = () =>
    rows<{ content: string; digest: string }>('SELECT content, digest FROM _prepared_orders');
  await save({ items: [{ ...line, comment: 'sin sal' }] });
  await decide();
  const before = JSON.parse(told()[0]?.content ?? '');
  expect(before).toMatchObject({ lines: [{ comment: expect.any(String) }] });
  expect(before.address).toContainEqual(expect.any(String));
  await mirror.customers.forgetAll([String(sample.internalOrderId)]);
  const [{ content, digest } = { content: '', digest: '?' }] = told();
  expect(JSON.parse(content)).toEqual({
    ...before,
    lines: [{ ...before.lines[0], comment: null }],
    address: [],
  });
  expect(digest).toBe('');
  expect(rows('SELECT digest FROM _preparation_events')).toEqual([{ digest: '' }]);
  await decide();
  expect(rows('SELECT event FROM _preparation_events')).toHaveLength(1);
  await save({ items: [{ ...line, comment: 'sin sal', amount: 9 }] });
  await decide();
  expect(rows('SELECT event FROM _preparation_events ORDER BY seq')).toEqual([
    { event: 'order.prepare' },
    { event: 'order.changed' },
  ]);
});

it('an order that the hub gives to another branch is undone, and prepared again when it is given back', async () => {
  const { mirror } = openTestMirror();
  const settings = kitchen('kitchen', {});
  const context = { nowMs: Date.parse('2026-01-15T15:00:00Z'), timezone: 'America/Santiago', branches: [] };
  const sample = sampleNotification(1, { status: 'inProcess' });
  await mirror.save([{ kind: 'order', observation: observation('webhook', sample) }]);
  const looks = new Preparations(mirror, settings);
  const decide = () => looks.decideNext({ orderSeq: 0, newsFrom: null }, context, '2026-01-15T15:00:00.000Z');
  const all = { orderSeq: mirror.orders.newestSeq(), newsFrom: null };
  const waiting = () => mirror.read((db) => waitingPreparations(db, settings, all, context)).length;
  const exec = (sql: string) => mirror.write((db) => void db.exec(sql));
  await mirror.write((db) => takeOn(db, 'branch'));
  await exec("INSERT INTO _link (one, line) VALUES (1, 'u')");
  expect([await decide(), await decide(), waiting()]).toEqual([true, false, 0]);
  await exec('INSERT INTO _orders_away SELECT order_id FROM orders');
  expect([waiting(), await decide(), await decide(), waiting()]).toEqual([1, true, false, 0]);
  await exec('DELETE FROM _orders_away');
  expect([waiting(), await decide(), await decide(), waiting()]).toEqual([1, true, false, 0]);
  const told = mirror.read((db) => preparationsFrom(db, 'kitchen', 0, 10));
  expect(told.map(({ preparation: { event, reason } }) => [event, reason])).toEqual([
    ['order.prepare', null],
    ['order.undone', 'moved'],
    ['order.prepare', null],
  ]);
});

it('says once that an order is to be prepared, then what changed, then that it is undone', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const daemon = await started(rig);
  await announce(rig, daemon, placed(rig, 1, { status: 'pending' }));
  await settle(rig);
  expect(said(receiver)).toEqual([]);
  await announce(rig, daemon, placed(rig, 1), placed(rig, 1), placed(rig, 1, { status: 'inProcess' }));
  await receiver.until(1);
  await announce(rig, daemon, placed(rig, 1, { status: 'inProcess', amountToPay: 1 }));
  await settle(rig);
  expect(said(receiver)).toEqual(['1 prepare']);
  const [line] = placed(rig, 1).items as Record<string, unknown>[];
  const edited = placed(rig, 1, { status: 'inProcess', items: [{ ...line, amount: 5 }] });
  await announce(rig, daemon, edited);
  await receiver.until(2);
  await announce(rig, daemon, { ...edited, status: 'cancel' });
  await receiver.until(3);
  await settle(rig);
  expect(said(receiver)).toEqual(['1 prepare', '1 changed', '1 undone']);
  const [first, second, third] = messages(receiver);
  expect(first).toMatchObject({ reason: null, changes: null, dueAt: null, seq: 1 });
  expect(first?.local.createdAt).toBe('2026-01-15 09:00');
  expect(second?.changes).toMatchObject([
    { change: 'changed', before: { quantity: 2 }, after: { quantity: 5 } },
    { change: 'removed' },
    { change: 'removed' },
  ]);
  expect(third).toMatchObject({ reason: 'cancel', status: 'cancel' });
  expect(new Set(receiver.received.map(({ event }) => (event as { id?: string }).id)).size).toBe(3);
});

it('prints for an order that comes as inProcess or ready, and nothing for what left or was cancelled', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const daemon = await started(rig);
  const statuses = ['dispatched', 'routed', 'cancel', 'payment-pending', 'inProcess', 'ready'];
  for (const [i, status] of statuses.entries()) await announce(rig, daemon, placed(rig, i, { status }));
  // The order that a poll brings first.
  const polled = rig.sandbox.control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  await settle(rig, 5 * MINUTE_MS);
  expect(said(receiver)).toEqual(['4 prepare', '5 prepare', `${polled.code} prepare`]);
});

it('a scheduled order is said when it is due, for each hook by its own lead, also if it is moved', async () => {
  const [early, late] = [await eventReceiver(), await eventReceiver()];
  const rig = storeWith([
    kitchen('early', { url: early.url, prepareBeforeMs: 2 * HOUR_MS }),
    kitchen('late', { url: late.url, prepareBeforeMs: 10 * MINUTE_MS }),
  ]);
  const daemon = await started(rig);
  const scheduled = (dueMs: number) =>
    placed(rig, 1, {
      isScheduled: true,
      scheduledDate: at(rig, dueMs),
      createdAt: '2026-01-15T12:00:00.000Z',
    });
  await announce(rig, daemon, scheduled(5 * HOUR_MS));
  await settle(rig);
  expect([said(early), said(late)]).toEqual([[], []]);
  // It is moved forward before anybody was told.
  await announce(rig, daemon, scheduled(3 * HOUR_MS));
  await rig.clock.advance(59 * MINUTE_MS);
  expect(said(early)).toEqual([]);
  await settle(rig, 2 * MINUTE_MS);
  expect([said(early), said(late)]).toEqual([['1 prepare'], []]);
  expect(messages(early)[0]?.local.dueAt).toBe('2026-01-15 12:00');
  // Only the one that was told hears of another time as a change.
  await announce(rig, daemon, scheduled(HOUR_MS));
  await early.until(2);
  await rig.clock.advance(49 * MINUTE_MS);
  expect(said(late)).toEqual([]);
  await settle(rig, 2 * MINUTE_MS);
  expect(said(late)).toEqual(['1 prepare']);
  expect(messages(early)[1]?.changes).toMatchObject([{ what: 'dueAt' }]);
});

it('a clock that is set forward or back says each order once; one that was off at the time says it at its start', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const first = await started(rig);
  const due = (number: number, hours: number) =>
    placed(rig, number, { isScheduled: true, scheduledDate: at(rig, hours * HOUR_MS) });
  await announce(rig, first, due(1, 2), due(2, 5));
  await settle(rig);
  rig.clock.jumpWall(2 * HOUR_MS);
  rig.sandbox.control.configure({ clockSkewMs: 0 });
  await settle(rig, 3 * MINUTE_MS);
  expect(said(receiver)).toEqual(['1 prepare']);
  rig.clock.jumpWall(-90 * MINUTE_MS);
  await settle(rig, 3 * MINUTE_MS);
  rig.clock.jumpWall(90 * MINUTE_MS);
  await settle(rig, 3 * MINUTE_MS);
  expect(said(receiver)).toEqual(['1 prepare']);
  await rig.run(first.stop());
  await rig.clock.advance(4 * HOUR_MS);
  await started(rig);
  await settle(rig, 3 * MINUTE_MS);
  expect(said(receiver)).toEqual(['1 prepare', '2 prepare']);
});

it('what is due before the receiver works again is sent once, as it is by then, and not if it was cancelled', async () => {
  const receiver = await eventReceiver();
  receiver.answer = 503;
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const daemon = await started(rig);
  await announce(rig, daemon, placed(rig, 1), placed(rig, 2), placed(rig, 3));
  await receiver.until(1);
  const [line] = placed(rig, 3).items as Record<string, unknown>[];
  await announce(rig, daemon, placed(rig, 2, { status: 'cancel' }), placed(rig, 3, { items: [line] }));
  const waiting = () =>
    daemon.services.mirror.read((db) =>
      statusOf(db, kitchen('kitchen', {}), 'order.prepare', {
        ...{ nowMs: rig.clock.nowMs(), timezone: 'America/Santiago', branches: [] },
      }),
    );
  expect(waiting()).toMatchObject({ waiting: 2 });
  receiver.answer = 204;
  await settle(rig, 2 * MINUTE_MS);
  expect([...new Set(said(receiver))]).toEqual(['1 prepare', '3 prepare']);
  expect(messages(receiver).at(-1)?.order?.items).toHaveLength(1);
  expect(waiting()).toMatchObject({ waiting: 0 });
});

it('an event that was tried keeps its id and comes before what changed meanwhile', async () => {
  const receiver = await eventReceiver();
  receiver.answer = 503;
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const first = await started(rig);
  await announce(rig, first, placed(rig, 1));
  await receiver.until(1);
  await rig.run(first.stop());
  const second = await started(rig);
  await announce(rig, second, placed(rig, 1, { status: 'cancel' }));
  receiver.answer = 204;
  await settle(rig, 3 * MINUTE_MS);
  const all = messages(receiver);
  expect(all.map(({ event }) => event).filter((event, i, list) => event !== list[i - 1])).toEqual([
    'order.prepare',
    'order.undone',
  ]);
  expect(new Set(all.filter(({ event }) => event === 'order.prepare').map(({ id }) => id)).size).toBe(1);
});

it('says nothing twice over a restart, a lost mirror and polls of the same orders, and goes on from there', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const first = await started(rig);
  const polled = rig.sandbox.control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  const other = rig.sandbox.control.createOrder(
    { status: 'payment-approved', ...UNSCHEDULED },
    { hidden: true },
  );
  await settle(rig, 5 * MINUTE_MS);
  expect(said(receiver).sort()).toEqual([`${polled.code} prepare`, `${other.code} prepare`].sort());
  const newest = Math.max(...receiver.seqs());
  await rig.run(first.stop());
  const second = await started(rig);
  await settle(rig, 5 * MINUTE_MS);
  await rig.run(second.stop());
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(path.join(rig.directory, `mirror.db${suffix}`), { force: true });
  }
  rig.sandbox.control.advanceOrder(polled.internalOrderId, 'cancel');
  await started(rig);
  await settle(rig, 5 * MINUTE_MS);
  const later = rig.sandbox.control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  await settle(rig, 5 * MINUTE_MS);
  expect(said(receiver).slice(2)).toEqual([`${polled.code} undone`, `${later.code} prepare`]);
  expect(Math.min(...receiver.seqs().slice(2))).toBeGreaterThan(newest);
});

it('says nothing twice on another machine that was restored from a backup and its differential one', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const { services, stop } = await started(rig);
  const { config } = services;
  const order = () =>
    rig.sandbox.control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  const told = async () => {
    receiver.received.length = 0;
    await settle(rig, 5 * MINUTE_MS);
    return said(receiver);
  };
  const before = order();
  expect(await told()).toEqual([`${before.code} prepare`]);
  const since = at(rig, 0);
  const file = path.join(rig.directory, 'tillsync-till-20260115T120000Z.tar.gz');
  const differential = file.replace('.tar.gz', '.differential.tar.gz');
  const common = { config, clock: rig.clock, who: 'test' };
  const options = { ...common, path: file, env: {}, configFile: '', force: false, withTokens: false };
  await rig.run(writeBackup(options));
  const news = () => services.mirror.read((db) => differentialState(db).news);
  const newsBefore = news();
  const [, changed, undone] = [order(), order(), order()];
  expect(await told()).toHaveLength(3);
  expect(news()).not.toBe(newsBefore);
  receiver.answer = 500;
  const refused = order();
  expect(await told()).toContain(`${refused.code} prepare`);
  receiver.answer = 204;
  await rig.run(stop());
  await rig.run(writeDifferential({ ...common, path: differential, since }));

  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(path.join(rig.directory, `mirror.db${suffix}`), { force: true });
  }
  // Another machine has tokens of its own, and knows of no hook.
  const state = new Database(path.join(rig.directory, 'state.db'));
  state.exec('DELETE FROM prepared_orders; DELETE FROM facts');
  state.close();
  const differentials = [await rig.run(readDifferential(differential, {}))];
  const opened = openSync(file, 'r');
  // It starts processes, which take real time, so the clock of the store stands still.
  await restoreBackup({ ...common, path: file, file: opened, differentials });
  closeSync(opened);
  rig.sandbox.control.advanceOrder(undone.internalOrderId, 'cancel');
  const [line] = changed.items;
  const items = line === undefined ? [] : [{ ...line, comment: 'no ice' }];
  rig.sandbox.control.changeOrder(changed.internalOrderId, { items });
  await rig.daemon();
  const wanted = [`${changed.code} changed`, `${undone.code} undone`, `${refused.code} prepare`];
  expect((await told()).sort()).toEqual(wanted.sort());
});

it('a new hook gets what is paid or due from now on, with "start" all that is to be prepared', async () => {
  const [now, start] = [await eventReceiver(), await eventReceiver()];
  const hooks: HookSettings[] = [];
  const rig = storeWith(hooks);
  const { control } = rig.sandbox;
  const unpaid = control.createOrder({ status: 'pending', ...UNSCHEDULED }, { hidden: true });
  const paid = control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  const before = await started(rig);
  await announce(
    rig,
    before,
    placed(rig, 1),
    placed(rig, 2, { isScheduled: true, scheduledDate: at(rig, HOUR_MS) }),
  );
  await settle(rig, 3 * MINUTE_MS);
  await rig.run(before.stop());
  hooks.push(kitchen('now', { url: now.url }), kitchen('start', { url: start.url, from: 'start' }));
  const daemon = await started(rig);
  await settle(rig, 3 * MINUTE_MS);
  expect([said(now), said(start).sort()]).toEqual([[], [`${paid.code} prepare`, '1 prepare'].sort()]);
  // A later step of an old order is no news, and its end neither.
  await announce(rig, daemon, placed(rig, 1, { status: 'ready' }));
  await announce(rig, daemon, placed(rig, 1, { status: 'cancel' }));
  control.advanceOrder(unpaid.internalOrderId, 'inProcess');
  await settle(rig, 3 * MINUTE_MS);
  expect(said(now)).toEqual([`${unpaid.code} prepare`]);
  await rig.clock.advance(HOUR_MS);
  await settle(rig);
  expect(said(now)).toEqual([`${unpaid.code} prepare`, '2 prepare']);
  expect(said(start)).toContain('1 undone');
});

it('a new hook on an empty mirror is not told of orders that a poll brings from before', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const { control } = rig.sandbox;
  const old = control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  await rig.clock.advance(MINUTE_MS);
  await started(rig);
  await settle(rig, 5 * MINUTE_MS);
  control.advanceOrder(old.internalOrderId, 'ready');
  const fresh = control.createOrder({ status: 'inProcess', ...UNSCHEDULED }, { hidden: true });
  await settle(rig, 5 * MINUTE_MS);
  expect(said(receiver)).toEqual([`${fresh.code} prepare`]);
});

it('an order that moves to another branch is undone there and prepared here; the two ids of one branch are one', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('kitchen', { url: receiver.url })]);
  const daemon = await started(rig);
  await announce(rig, daemon, placed(rig, 1));
  await receiver.until(1);
  await announce(rig, daemon, placed(rig, 1, { store: { externalId: 'sub-1' } }));
  await settle(rig);
  expect(said(receiver)).toEqual(['1 prepare']);
  await announce(rig, daemon, placed(rig, 1, { store: { externalId: 'B2' } }));
  await receiver.until(3);
  expect(said(receiver)).toEqual(['1 prepare', '1 undone', '1 prepare']);
  expect(messages(receiver)[1]).toMatchObject({ reason: 'moved' });
});

it('a hook gets only the events that it asks for; the others count as told', async () => {
  const receiver = await eventReceiver();
  const rig = storeWith([kitchen('slips', { url: receiver.url, events: ['order.undone'] })]);
  const daemon = await started(rig);
  await announce(rig, daemon, placed(rig, 1), placed(rig, 2));
  await settle(rig);
  await announce(rig, daemon, placed(rig, 1, { items: [] }), placed(rig, 2, { status: 'refund' }));
  await settle(rig);
  expect(said(receiver)).toEqual(['2 undone']);
});

it('hooks skip and hooks send work on these events, too', async () => {
  const receiver = await eventReceiver();
  receiver.answer = 503;
  const settings = kitchen('kitchen', { url: receiver.url });
  const rig = storeWith([settings]);
  const daemon = await started(rig);
  await announce(rig, daemon, placed(rig, 1), placed(rig, 2), placed(rig, 3));
  await receiver.until(1);
  const { mirror } = await rig.services();
  const key = { name: 'kitchen', event: 'order.prepare' } as const;
  const context = { nowMs: rig.clock.nowMs(), timezone: 'America/Santiago', branches: [] };
  const skipped = await rig.run(
    mirror.write((db) => {
      const { seq = 0, orderSeq = 0, newsFrom = null } = cursorOf(db, key) ?? {};
      const waiting = { seq, orderSeq: orderSeq ?? 0, newsFrom, all: true, at: at(rig, 0) };
      decideWaiting(db, settings, waiting, context);
      return skipWaiting(db, settings, 'order.prepare', 3);
    }),
  );
  expect(skipped).toEqual({ seq: 3, skipped: 3 });
  receiver.answer = 204;
  await announce(rig, daemon, placed(rig, 4));
  await settle(rig, 2 * MINUTE_MS);
  expect([...new Set(said(receiver))]).toEqual(['1 prepare', '4 prepare']);
  expect(receiver.seqs().at(-1)).toBe(4);
  await until(() => statusOf1(daemon, settings) === 4);
  expect(
    rig.rows("SELECT event FROM _hook_deliveries WHERE taken = 1 AND event = 'order.prepare'"),
  ).toHaveLength(1);
});

function statusOf1(daemon: Daemon, settings: HookSettings): number | null {
  return daemon.services.mirror.read((db) => statusOf(db, settings, 'order.prepare')).seq;
}
