/** Tests src/hooks/hook-loop.ts, src/hooks/hook-cursors.ts and src/api/receiver-routes.ts. */

import { createHmac } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import type { HookSettings } from '../../src/hooks/hook.ts';
import { skipWaiting, statusOf } from '../../src/hooks/hook-cursors.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type StoreRig, type StoreRigOptions, storeRig } from '../support/store-rig.ts';
import { eventReceiver, hook, until } from './event-receiver.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const STEP_MS = 2 * SECOND_MS;

/** Makes a store whose hooks a test may change between two starts. */
function storeWith(hooks: HookSettings[], options: StoreRigOptions = {}) {
  const rig = storeRig({
    ...options,
    config: (config) => ({ ...config, hooks, orders: { ...config.orders, poll: '*/2 * * * *' } }),
  });
  /** Sends callbacks of new orders, or of one order in several statuses. */
  const announce = async (daemon: Daemon, ...notifications: Record<string, unknown>[]) => {
    for (const notification of notifications) expect(await rig.announce(daemon, notification)).toBe(200);
  };
  const status = (daemon: Daemon, name: string) => {
    const settings = hooks.find((each) => each.name === name) ?? hook(name);
    return daemon.services.mirror.read((db) => statusOf(db, settings, 'order'));
  };
  return { rig, announce, status };
}

/** Advances the clock in small steps until `isSo` is true, with real time for sockets between the steps. */
async function runUntil(
  rig: StoreRig,
  isSo: () => boolean,
  maxMs = 10 * MINUTE_MS,
  stepMs = STEP_MS,
): Promise<void> {
  for (let ms = 0; !isSo(); ms += stepMs) {
    if (ms > maxMs) throw new Error('it did not come about');
    await rig.clock.advance(stepMs);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

const order = (number: number, status = 'pending') => sampleNotification(number, { status });

describe('a hook', () => {
  it('gets each event in order, one at a time, as /v1/orders has it, and signed', async () => {
    const receiver = await eventReceiver();
    const { rig, announce, status } = storeWith([hook('pos', { url: receiver.url })], {
      secrets: { hookSecrets: { pos: ['shared-secret'] } },
    });
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, order(1), order(2), order(1, 'payment-approved'));
    await receiver.until(3);

    const page = (await (await fetch(`${daemon.localUrl}/v1/orders?after=0`)).json()) as {
      events: unknown[];
    };
    // The first event was sent with its order as it was then. The order has changed since, so the first event is not
    // compared.
    expect(receiver.received.slice(1).map(({ event }) => event)).toEqual(page.events.slice(1));
    expect(Object.keys(receiver.received[0]?.event ?? {})).toEqual(Object.keys(page.events[0] as object));
    expect(receiver.seqs()).toEqual([...receiver.seqs()].sort((a, b) => a - b));
    expect(receiver.openMax).toBe(1);
    for (const { body, headers } of receiver.received) {
      const digest = createHmac('sha256', 'shared-secret').update(body).digest('hex');
      expect(headers['x-tillsync-signature']).toBe(`sha256=${digest}`);
      expect(headers['content-type']).toBe('application/json');
    }
    await until(() => status(daemon, 'pos').seq === daemon.services.mirror.orders.newestSeq());
    expect(status(daemon, 'pos')).toMatchObject({ waiting: 0, failures: 0, lastFailure: null });
  });

  it('is sent to its secret address, of which neither status nor failure says more than the host', async () => {
    const receiver = await eventReceiver();
    receiver.answer = 500;
    const { origin } = new URL(receiver.url);
    const { rig, announce, status } = storeWith([hook('chat', { url: origin })], {
      secrets: { hookUrls: { chat: `${origin}/planted-token` } },
    });
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, order(1));
    await receiver.until(1);
    await until(() => status(daemon, 'chat').failures === 1);
    expect(receiver.received[0]?.path).toBe('/planted-token');
    expect(JSON.stringify(status(daemon, 'chat'))).not.toContain('planted');
  });

  it('goes on where it was after a restart, and sends nothing twice', async () => {
    const receiver = await eventReceiver();
    const { rig, announce } = storeWith([hook('pos', { url: receiver.url })]);
    const first = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(first, order(1), order(2));
    await receiver.until(2);
    await rig.run(first.stop());
    const second = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(second, order(3));
    await receiver.until(3);
    await rig.clock.advance(10 * MINUTE_MS);
    expect(new Set(receiver.seqs()).size).toBe(3);
    expect(receiver.received.map(({ event }) => event.order?.code)).toEqual([1, 2, 3]);
    expect(receiver.received[0]?.headers).not.toHaveProperty('x-tillsync-signature');
  });

  it('whose answer no note was made of, for the machine died between the two, gets that event again and no other', async () => {
    const receiver = await eventReceiver();
    const { rig, announce } = storeWith([hook('pos', { url: receiver.url })]);
    const atAnswer = mkdtempSync(path.join(tmpdir(), 'tillsync-at-answer-'));
    onTestFinished(() => rmSync(atAnswer, { recursive: true, force: true }));
    const life = (self: string) => ({ holders: { self, isAlive: (holder: string) => holder === self } });
    const first = await rig.daemon(undefined, life('first'));
    await rig.clock.advance(MINUTE_MS);
    await announce(first, order(1));
    await receiver.until(1);
    await until(() => rig.rows('SELECT 1 FROM _hooks WHERE last_ok_at IS NOT NULL').length === 1);
    // Copies the files when the second event is received, before its delivery is recorded.
    receiver.answer = (response) => {
      cpSync(rig.directory, atAnswer, {
        recursive: true,
        filter: (file) => !/-shm$|local\.sock$/.test(file),
      });
      response.writeHead(200).end();
      receiver.answer = 200;
    };
    await announce(first, order(2));
    await receiver.until(2);
    await rig.run(first.stop());
    rmSync(rig.directory, { recursive: true });
    cpSync(atAnswer, rig.directory, { recursive: true });

    const second = await rig.daemon(undefined, life('second'));
    await rig.clock.advance(MINUTE_MS);
    await announce(second, order(3));
    await receiver.until(4);
    await rig.clock.advance(10 * MINUTE_MS);
    expect(receiver.received.map(({ event }) => event.order?.code)).toEqual([1, 2, 2, 3]);
    const [, taken, again] = receiver.received;
    expect(again?.body).toBe(taken?.body);
  });

  it('that answers no success gets the event again, and later ones after it', async () => {
    const receiver = await eventReceiver();
    const elsewhere = await eventReceiver();
    const { rig, announce, status } = storeWith([hook('pos', { url: receiver.url })]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    for (const [at, code] of [400, 404, 410, 429, 500, 302].entries()) {
      receiver.answer = (response) => response.writeHead(code, { location: elsewhere.url }).end();
      const [first, second] = [2 * at + 1, 2 * at + 2];
      const before = receiver.received.length;
      await announce(daemon, order(first), order(second));
      await runUntil(rig, () => receiver.received.length === before + 4);
      expect(new Set(receiver.seqs().slice(before)).size).toBe(1);
      await until(() => status(daemon, 'pos').failures === 4);
      expect(status(daemon, 'pos')).toMatchObject({
        waiting: 2,
        lastFailure: expect.stringContaining(`answered ${code}`),
      });
      receiver.answer = 200;
      await runUntil(rig, () => receiver.received.length === before + 6);
      await until(() => status(daemon, 'pos').waiting === 0);
      expect(receiver.received.slice(-2).map(({ event }) => event.order?.code)).toEqual([first, second]);
    }
    expect(elsewhere.received).toEqual([]);
  });

  it('that fails is tried again after growing times, up to a minute, or when it asks for it', async () => {
    const receiver = await eventReceiver();
    receiver.answer = 503;
    const { rig, announce } = storeWith([hook('pos', { url: receiver.url })]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    const times: number[] = [];
    await announce(daemon, order(1));
    for (let tries = 1; tries <= 9; tries++) {
      await runUntil(rig, () => receiver.received.length >= tries);
      times.push(rig.clock.monotonicMs());
    }
    const waits = times.slice(1).map((ms, i) => ms - (times[i] ?? 0));
    for (const [i, ms] of waits.entries()) {
      const fullMs = Math.min(2 * SECOND_MS * 2 ** i, MINUTE_MS);
      expect(ms, `wait ${i}`).toBeGreaterThanOrEqual(fullMs / 2 - STEP_MS);
      expect(ms, `wait ${i}`).toBeLessThanOrEqual(fullMs + STEP_MS);
    }
    receiver.answer = (response) => response.writeHead(429, { 'retry-after': '600' }).end();
    await runUntil(rig, () => receiver.received.length === 10);
    const askedAtMs = rig.clock.monotonicMs();
    await runUntil(rig, () => receiver.received.length === 11, 15 * MINUTE_MS);
    expect(rig.clock.monotonicMs() - askedAtMs).toBeGreaterThan(599 * SECOND_MS);
  });

  it('that fails delays neither orders nor other hooks; an alarm names it, amber, then red, then over', async () => {
    const [good, bad] = [await eventReceiver(), await eventReceiver()];
    bad.answer = 500;
    const { rig, announce } = storeWith([
      hook('printer', { url: bad.url }),
      hook('phone', { url: good.url }),
    ]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, order(1), order(2), order(3));
    await good.until(3);
    await bad.until(1);
    await rig.clock.advance(90 * SECOND_MS);
    expect(await lagging(daemon)).toBeUndefined();
    await rig.clock.advance(MINUTE_MS);
    const amber = await lagging(daemon);
    expect(amber).toMatchObject({ level: 'amber', remedy: expect.stringContaining('hooks list') });
    expect(amber?.detail).toMatch(/The hook printer has not taken event \d+, .* answered 500/);
    expect(amber?.detail).not.toContain('phone');
    await runUntil(rig, () => false, 14 * MINUTE_MS, MINUTE_MS / 2).catch(() => {});
    expect(await lagging(daemon)).toMatchObject({ level: 'red' });
    bad.answer = 200;
    await runUntil(rig, () => new Set(bad.seqs()).size === 3);
    await rig.clock.advance(5 * SECOND_MS);
    expect(await lagging(daemon)).toBeUndefined();
  });

  it('gets only the statuses it asks for', async () => {
    const receiver = await eventReceiver();
    const { rig, announce, status } = storeWith([
      hook('kitchen', { url: receiver.url, statuses: ['payment-approved', 'cancel'] }),
    ]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, order(1), order(1, 'payment-approved'), order(2), order(1, 'cancel'));
    await receiver.until(2);
    await rig.clock.advance(MINUTE_MS);
    expect(receiver.received.map(({ event }) => event.status)).toEqual(['payment-approved', 'cancel']);
    expect(status(daemon, 'kitchen').waiting).toBe(0);
  });
});

async function lagging({ localUrl }: Daemon) {
  const { verdict } = (await (await fetch(`${localUrl}/v1/status`)).json()) as { verdict: Verdict };
  return verdict.findings.find(({ code }) => code === 'hooks.lagging');
}

describe('where a hook begins', () => {
  it('is what comes from now on: not the orders that polls bring from before', async () => {
    const [now, start] = [await eventReceiver(), await eventReceiver()];
    const { rig, announce } = storeWith([
      hook('now', { url: now.url }),
      hook('start', { url: start.url, from: 'start' }),
    ]);
    const old = [1, 2, 3].map(() => rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true }));
    await rig.clock.advance(MINUTE_MS);
    const daemon = await rig.daemon();
    await runUntil(rig, () => start.received.length === 3);
    await announce(daemon, order(9_001));
    await Promise.all([now.until(1), start.until(4)]);
    expect(now.received.map(({ event }) => event.order?.code)).toEqual([9_001]);
    // A later event of an old order is sent.
    const [first] = old;
    rig.sandbox.control.advanceOrder(first?.internalOrderId ?? '', 'dispatched');
    await runUntil(rig, () => now.received.length === 2, 10 * MINUTE_MS);
    expect(now.received[1]?.event).toMatchObject({ orderId: first?.internalOrderId, source: 'poll' });
    // A new order that only a poll brings is sent too.
    const late = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    await runUntil(rig, () => now.received.length === 3, 10 * MINUTE_MS);
    expect(now.received[2]?.event.orderId).toBe(late.internalOrderId);
  });

  it('is anew under another name; one that is taken out is forgotten', async () => {
    const receiver = await eventReceiver();
    const hooks = [hook('pos', { url: receiver.url })];
    const { rig, announce, status } = storeWith(hooks);
    const first = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(first, order(1));
    await receiver.until(1);
    await rig.run(first.stop());

    // The event of order 2 arrives while no hook is configured. Later only the hook with `from: 'start'` gets it.
    hooks.length = 0;
    const second = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(second, order(2));
    await rig.run(second.stop());
    expect(rig.rows('SELECT name FROM _hooks')).toEqual([]);

    hooks.push(hook('pos', { url: receiver.url }), hook('other', { url: receiver.url, from: 'start' }));
    const third = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await receiver.until(3);
    await announce(third, order(3));
    await receiver.until(5);
    await until(() => status(third, 'pos').waiting === 0);
    const codes = receiver.received.map(({ event }) => event.order?.code);
    expect(codes.slice(0, 3)).toEqual([1, 1, 2]);
    expect(codes.slice(3)).toEqual([3, 3]);
  });

  it('is not anew when the mirror is: all orders of the new one come, with higher numbers', async () => {
    const receiver = await eventReceiver();
    const { rig, announce } = storeWith([hook('pos', { url: receiver.url })]);
    const before = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    await rig.clock.advance(MINUTE_MS);
    const first = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    const known = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    await runUntil(rig, () => receiver.received.length === 1, 10 * MINUTE_MS);
    const [seq = 0] = receiver.seqs();
    await rig.run(first.stop());

    for (const suffix of ['', '-wal', '-shm']) {
      rmSync(path.join(rig.directory, `mirror.db${suffix}`), { force: true });
    }
    const missed = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    const second = await rig.daemon();
    await runUntil(rig, () => receiver.received.length === 3, 10 * MINUTE_MS);
    await announce(second, order(9_002));
    await receiver.until(4);
    const again = receiver.received.slice(1, 3).map(({ event }) => event.orderId);
    expect(again.sort()).toEqual([known.internalOrderId, missed.internalOrderId].sort());
    expect(Math.min(...receiver.seqs().slice(1))).toBeGreaterThan(seq + 999_990);
    const all = receiver.received.map(({ event }) => event.orderId);
    expect(all, 'an order from before the hook began').not.toContain(before.internalOrderId);
  });

  it('is put right when a clock that was ahead noted it', async () => {
    const receiver = await eventReceiver();
    const { rig } = storeWith([hook('pos', { url: receiver.url })]);
    const first = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await rig.run(
      first.services.mirror.write((db) =>
        db.exec("UPDATE _hooks SET news_from = '2031-01-01T00:00:00.000Z'"),
      ),
    );
    await rig.clock.advance(10 * MINUTE_MS);
    rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    await runUntil(rig, () => receiver.received.length === 1, 10 * MINUTE_MS);
  });
});

describe('a hook of a machine whose clock is years behind until somebody sets it', () => {
  const DAY_MS = 24 * 60 * MINUTE_MS;
  const BEHIND_MS = 4_000 * DAY_MS;

  const starts = ['first start', 'restart'];
  for (const start of starts) it(`sends no old orders after that ${start}`, () => startsBehind(start));

  async function startsBehind(start: string): Promise<void> {
    const receiver = await eventReceiver();
    const { rig } = storeWith([hook('kitchen', { url: receiver.url })]);
    const { control } = rig.sandbox;
    if (start === 'restart') {
      const before = await rig.daemon();
      await rig.clock.advance(5 * MINUTE_MS);
      await rig.run(before.stop());
    }
    const setClock = (wrongByMs: number) => {
      rig.clock.jumpWall(wrongByMs);
      control.configure({ clockSkewMs: Math.max(-wrongByMs, 0) });
    };
    setClock(-BEHIND_MS);
    const { services } = await rig.daemon();
    await rig.clock.advance(STEP_MS);
    setClock(BEHIND_MS);
    await rig.clock.advance(5 * MINUTE_MS);

    const [oldMs, dayMs] = [rig.clock.nowMs() - 20 * DAY_MS, rig.clock.nowMs() - 21 * DAY_MS];
    for (let i = 0; i < 3; i++)
      control.createOrder({ status: 'inProcess', createdAtMs: oldMs }, { hidden: true });
    const [startDate = '', endDate = ''] = [dayMs, oldMs + DAY_MS].map((ms) =>
      new Date(ms).toISOString().slice(0, 10),
    );
    const report = await rig.run(services.orderPoll.poll({ window: { startDate, endDate } }));
    expect(report.created).toBe(3);
    const fresh = control.createOrder({ status: 'pending' }, { hidden: true });
    await runUntil(rig, () => receiver.received.length > 0);
    await rig.clock.advance(5 * MINUTE_MS);
    expect(receiver.received.map(({ event }) => event.orderId)).toEqual([fresh.internalOrderId]);
  }
});

it('a test with a real order leaves nothing of its customer in state.db, whatever the receiver answers', async () => {
  const receiver = await eventReceiver();
  const { rig, announce } = storeWith([hook('chat', { url: receiver.url })]);
  const daemon = await rig.daemon();
  await rig.clock.advance(MINUTE_MS);
  const announced = order(1);
  await announce(daemon, announced);
  await receiver.until(1);
  receiver.answer = (response, event) => response.end(JSON.stringify(event.order?.customerEmail));
  const answered = await fetch(`${daemon.localUrl}/v1/hooks/chat/test`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ order: String(announced.internalOrderId) }),
  });
  expect(receiver.received).toHaveLength(2);
  const email = receiver.received[1]?.event.order?.customerEmail ?? '';
  expect(email).toContain('@');
  const answer = (await answered.json()) as { answer: string };
  expect(answer).toMatchObject({ ok: true, hook: 'chat', event: 'order' });
  expect(answer.answer).toContain(email);
  for (const suffix of ['', '-wal'])
    expect(readFileSync(path.join(rig.directory, `state.db${suffix}`)).includes(email)).toBe(false);
});

describe('hooks skip', () => {
  async function stuckStore() {
    const receiver = await eventReceiver();
    receiver.answer = (response, event) => response.writeHead(event.order?.code === 4 ? 200 : 400).end();
    const settings = hook('pos', { url: receiver.url });
    const { rig, announce, status } = storeWith([settings]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, ...[1, 2, 3, 4].map((number) => order(number)));
    await receiver.until(1);
    await until(() => status(daemon, 'pos').failures === 1);
    // A command opens a connection of its own to the mirror.
    const { mirror } = await rig.services();
    const skip = (to: number | null) => rig.run(mirror.write((db) => skipWaiting(db, settings, 'order', to)));
    const unknown = hook('unknown', { url: receiver.url });
    expect(await rig.run(mirror.write((db) => skipWaiting(db, unknown, 'order', null)))).toBeUndefined();
    return {
      rig,
      daemon,
      receiver,
      status,
      skip,
      codes: () => receiver.received.map(({ event }) => event.order?.code),
    };
  }

  it('passes over the event that hangs, and the next one is tried at once', async () => {
    const { rig, daemon, codes, status, skip } = await stuckStore();
    const { seq = null } = status(daemon, 'pos');
    const passed = await skip(null);
    expect(passed).toMatchObject({ skipped: 1 });
    expect(passed?.seq).toBeGreaterThan(seq ?? 0);
    await runUntil(rig, () => codes().includes(2), 6 * MINUTE_MS);
    expect(status(daemon, 'pos').waiting).toBe(3);
  });

  it('holds for a hook that is taking events, too: what it has in hand is its last', async () => {
    const receiver = await eventReceiver();
    let answer = () => {};
    receiver.answer = (response) => {
      answer = () => response.writeHead(204).end();
    };
    const settings = hook('printer', { url: receiver.url });
    const { rig, announce } = storeWith([settings]);
    const daemon = await rig.daemon();
    await rig.clock.advance(MINUTE_MS);
    await announce(daemon, order(1));
    await receiver.until(1);
    // The hook reads these events together.
    await announce(daemon, order(2), order(3), order(4));
    answer();
    await receiver.until(2);
    const { mirror } = await rig.services();
    const newest = daemon.services.mirror.orders.newestSeq();
    await rig.run(mirror.write((db) => skipWaiting(db, settings, 'order', newest)));
    receiver.answer = 204;
    answer();
    await announce(daemon, order(5));
    await until(() => receiver.received.at(-1)?.event.order?.code === 5);
    expect(receiver.received.map(({ event }) => event.order?.code)).toEqual([1, 2, 5]);
  });

  it('passes over all up to a place, and never goes back or beyond the newest', async () => {
    const { rig, daemon, receiver, codes, status, skip } = await stuckStore();
    const newest = daemon.services.mirror.orders.newestSeq();
    expect(await skip(newest - 1)).toEqual({ seq: newest - 1, skipped: 3 });
    await runUntil(rig, () => codes().includes(4), 6 * MINUTE_MS);
    expect(codes()).not.toContain(2);
    await until(() => status(daemon, 'pos').waiting === 0);
    await expect(skip(newest + 1)).rejects.toMatchObject({ code: 'usage' });
    await expect(skip(1)).rejects.toMatchObject({ code: 'usage' });
    expect(await skip(null)).toEqual({ seq: newest, skipped: 0 });
    expect(receiver.received.length).toBeLessThan(6);
  });
});
