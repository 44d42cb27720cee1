/** Tests src/hooks/hook-loop.ts and src/hooks/hook-cursors.ts: the event `change.rejected`. */

import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { Webhook } from 'standardwebhooks';
import { expect, it, onTestFinished } from 'vitest';
import type { Daemon } from '../../src/daemon/daemon.ts';
import type { Verdict } from '../../src/health/verdict.ts';
import type { HookSettings, RejectedChangeEvent } from '../../src/hooks/hook.ts';
import { rewind, skipWaiting, statusOf } from '../../src/hooks/hook-cursors.ts';
import { sampleNotification } from '../support/order-samples.ts';
import { type StoreRig, storeRig } from '../support/store-rig.ts';
import { type EventReceiver, eventReceiver, hook, until } from './event-receiver.ts';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const REJECTIONS = { events: ['change.rejected'], from: 'now' } as const;
/** Interval of reading the feed, long enough that a test does not spend its time on idle loops. */
const LOOK_EVERY_MS = 5_000;
/** Returns a stock count for a branch that does not have the product. */
const count = (reference: string) => ({ externalId: 'A-1001-1', subsidiaryId: 'sub-3', qty: 1, reference });

/** Makes a shop with these hooks, which a test may change between two starts. */
function shop(hooks: HookSettings[]) {
  const secrets = { hookSecrets: Object.fromEntries(hooks.map(({ name }) => [name, [SECRET]])) };
  const rig = storeRig({ secrets, config: (config) => ({ ...config, hooks }), lookEveryMs: LOOK_EVERY_MS });
  /** Starts the daemon and waits until it has read the catalogue. */
  const open = async (...how: Parameters<StoreRig['daemon']>) => {
    const daemon = await rig.daemon(...how);
    await rig.clock.advance(20_000);
    return daemon;
  };
  /** Hands changes over and returns the last one's id. */
  const submit = async ({ localUrl }: Daemon, ...items: object[]): Promise<number> => {
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify(items);
    const answer = await fetch(`${localUrl}/v1/stock`, { method: 'POST', headers, body });
    const { results } = (await answer.json()) as { results: { changeId: number }[] };
    return results.at(-1)?.changeId ?? 0;
  };
  /** Waits until a change has settled. */
  const settled = async ({ services }: Daemon, changeId: number) => {
    const isOpen = () => services.outbox.get(changeId)?.settledAt === null;
    for (let turns = 0; isOpen() && turns < 50; turns++) await rig.clock.advance(LOOK_EVERY_MS / 2);
    expect(isOpen()).toBe(false);
  };
  const status = ({ services }: Daemon, event: 'order' | 'change.rejected' = 'change.rejected') =>
    services.mirror.read((db) => statusOf(db, hooks[0] as HookSettings, event));
  return { rig, open, submit, settled, status };
}

const bodies = ({ received }: EventReceiver) =>
  received.map(({ body }) => JSON.parse(body) as RejectedChangeEvent);
const references = (receiver: EventReceiver) => bodies(receiver).map(({ change }) => change?.reference);

/** Advances the clock until this number of events has arrived. */
async function arrived(rig: StoreRig, receiver: EventReceiver, number: number): Promise<void> {
  for (let turns = 0; receiver.received.length < number; turns++) {
    if (turns > 200) throw new Error(`${receiver.received.length} of ${number} arrived`);
    await rig.clock.advance(LOOK_EVERY_MS / 2);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

it('a hook gets each rejected change in order, signed and as /v1/outbox shows it, and nothing else', async () => {
  const [till, orders] = [await eventReceiver(), await eventReceiver()];
  const { rig, open, submit, status } = shop([
    hook('till', { url: till.url, ...REJECTIONS }),
    hook('printer', { url: orders.url }),
  ]);
  const daemon = await open();
  const taken = { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 7 };
  await submit(daemon, count('till-1/1'), taken, { externalId: 'NOWHERE', qty: 1, reference: 'till-1/2' });
  expect(await rig.announce(daemon, sampleNotification(1))).toBe(200);
  await arrived(rig, till, 2);
  await submit(daemon, count('till-1/3'));
  await arrived(rig, till, 3);
  await rig.clock.advance(30_000);

  const answer = await fetch(`${daemon.localUrl}/v1/outbox?after=0`);
  const { changes } = (await answer.json()) as { changes: RejectedChangeEvent['change'][] };
  const rejected = changes.filter(({ state }) => state === 'rejected');
  // A newer value supersedes the change `till-1/1` after it was sent.
  expect(references(till)).toEqual(['till-1/1', 'till-1/2', 'till-1/3']);
  expect(bodies(till).slice(1)).toEqual(
    rejected.map((change) => ({ event: 'change.rejected', seq: change.settledSeq, change })),
  );
  expect(bodies(till)[0]?.change).toMatchObject({
    kind: 'stock',
    state: 'rejected',
    message: expect.stringMatching(/^externalId A-1001-1 is not in branch sub-3; it is sku 1001 in /),
    body: { externalId: 'A-1001-1', subsidiaryId: 'sub-3', qty: 1 },
  });
  expect(changes.map(({ state }) => state).sort()).toEqual(['done', 'rejected', 'rejected', 'superseded']);
  expect(till.seqs()).toEqual([...till.seqs()].sort((a, b) => a - b));
  for (const { body, headers } of till.received) {
    // The injected clock differs from the real one, so `verify` would refuse the time. The signature alone is compared.
    const at = Number(headers['webhook-timestamp']);
    const signed = new Webhook(SECRET).sign(String(headers['webhook-id']), new Date(at * 1_000), body);
    expect(headers['webhook-signature']).toBe(signed);
    expect(headers['x-tillsync-signature']).toMatch(/^sha256=[0-9a-f]{64}$/);
  }
  expect(new Set(till.received.map(({ headers }) => headers['webhook-id'])).size).toBe(3);
  expect(orders.received.map(({ event }) => event.order?.code)).toEqual([1]);
  expect(orders.received[0]?.event).not.toHaveProperty('event');
  expect(status(daemon)).toMatchObject({ event: 'change.rejected', waiting: 0, failures: 0 });
});

it('a change that was taken before a kill, and not noted, comes again with its id, and no other does', async () => {
  const receiver = await eventReceiver();
  const { rig, open, submit } = shop([hook('till', { url: receiver.url, ...REJECTIONS })]);
  const atAnswer = mkdtempSync(path.join(tmpdir(), 'tillsync-at-answer-'));
  onTestFinished(() => rmSync(atAnswer, { recursive: true, force: true }));
  const life = (self: string) => ({ holders: { self, isAlive: (holder: string) => holder === self } });
  const first = await open(undefined, life('first'));
  await submit(first, count('a'));
  await arrived(rig, receiver, 1);
  await rig.clock.advance(5_000);
  // Copies the files when the second change is received, before its delivery is recorded.
  receiver.answer = (response) => {
    const filter = (file: string) => !/-shm$|local\.sock$/.test(file);
    cpSync(rig.directory, atAnswer, { recursive: true, filter });
    response.writeHead(200).end();
    receiver.answer = 200;
  };
  await submit(first, { externalId: 'A-1001-1', subsidiaryId: 'sub-9', qty: 2, reference: 'b' });
  await arrived(rig, receiver, 2);
  await rig.run(first.stop());
  rmSync(rig.directory, { recursive: true });
  cpSync(atAnswer, rig.directory, { recursive: true });

  const second = await open(undefined, life('second'));
  await submit(second, { externalId: 'GONE-1', subsidiaryId: 'sub-1', qty: 3, reference: 'c' });
  await arrived(rig, receiver, 4);
  await rig.clock.advance(30_000);
  expect(references(receiver)).toEqual(['a', 'b', 'b', 'c']);
  const [, taken, again] = receiver.received;
  expect([again?.body, again?.headers['webhook-id']]).toEqual([taken?.body, taken?.headers['webhook-id']]);
});

it('a change is not sent before it is committed, and not at all when it is rolled back', async () => {
  const receiver = await eventReceiver();
  const { rig, open, submit, settled } = shop([hook('till', { url: receiver.url, ...REJECTIONS })]);
  const daemon = await open();
  const changeId = await submit(daemon, { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 7 });
  await settled(daemon, changeId);
  const other = new Database(path.join(rig.directory, 'mirror.db'));
  onTestFinished(() => void other.close());
  for (const end of ['ROLLBACK', 'COMMIT']) {
    other.exec('BEGIN IMMEDIATE');
    other.prepare("UPDATE _outbox SET state = 'rejected' WHERE change_id = ?").run(changeId);
    await rig.clock.advance(LOOK_EVERY_MS);
    expect(receiver.received).toEqual([]);
    other.exec(end);
    await rig.clock.advance(2 * LOOK_EVERY_MS);
  }
  await arrived(rig, receiver, 1);
  expect(bodies(receiver)[0]?.change.changeId).toBe(changeId);
});

it('a hook with both events gets one at a time, and keeps a place in each feed over a restart', async () => {
  const receiver = await eventReceiver();
  const { rig, open, submit, status } = shop([
    hook('till', { url: receiver.url, events: ['order', 'change.rejected'] }),
  ]);
  receiver.answer = (response) => void setTimeout(() => response.writeHead(204).end(), 10);
  const kinds = () => bodies(receiver).map(({ event = 'order' }: { event?: string }) => event);
  const first = await open();
  for (let n = 1; n <= 5; n++) {
    expect(await rig.announce(first, sampleNotification(n))).toBe(200);
    await submit(first, { externalId: `GONE-${n}`, subsidiaryId: 'sub-1', qty: n });
  }
  await arrived(rig, receiver, 10);
  await until(() => status(first, 'order').waiting + status(first).waiting === 0);
  expect(kinds().sort()).toEqual([...Array(5).fill('change.rejected'), ...Array(5).fill('order')]);
  expect(receiver.openMax).toBe(1);
  await rig.run(first.stop());

  const second = await open();
  expect(await rig.announce(second, sampleNotification(6))).toBe(200);
  await arrived(rig, receiver, 11);
  await submit(second, { externalId: 'GONE-6', subsidiaryId: 'sub-1', qty: 6 });
  await arrived(rig, receiver, 12);
  await until(() => status(second, 'order').waiting + status(second).waiting === 0);
  await rig.clock.advance(30_000);
  expect(kinds().slice(10)).toEqual(['order', 'change.rejected']);
});

it('a receiver that fails raises the alarm, which names the change; a change that was ended meanwhile is passed', async () => {
  const receiver = await eventReceiver();
  receiver.answer = 503;
  const { rig, open, submit, settled, status } = shop([hook('till', { url: receiver.url, ...REJECTIONS })]);
  const daemon = await open();
  const changeId = await submit(daemon, count('a'));
  await settled(daemon, await submit(daemon, { externalId: 'A-1001-1', subsidiaryId: 'sub-1', qty: 7 }));
  await arrived(rig, receiver, 2);
  await rig.clock.advance(180_000);
  const { settledSeq } = daemon.services.outbox.get(changeId) ?? {};
  expect((await lagging(daemon))?.detail).toMatch(
    new RegExp(`^The hook till has not taken rejected change ${settledSeq}, .* answered 503`),
  );
  expect(status(daemon)).toMatchObject({ waiting: 1, failures: expect.any(Number) });
  await rig.run(daemon.services.outbox.discard(changeId, 'cli ana'));
  const before = receiver.received.length;
  await rig.clock.advance(180_000);
  expect(await lagging(daemon)).toBeUndefined();
  expect(status(daemon)).toMatchObject({ waiting: 0, failures: 0, nextTryAt: null });
  receiver.answer = 204;
  await submit(daemon, count('b'));
  await arrived(rig, receiver, before + 1);
  expect(references(receiver).at(-1)).toBe('b');
});

async function lagging({ localUrl }: Daemon) {
  const { verdict } = (await (await fetch(`${localUrl}/v1/status`)).json()) as { verdict: Verdict };
  return verdict.findings.find(({ code }) => code === 'hooks.lagging');
}

it('a hook that gets the event from now on is not told of older changes; from = "start" tells all', async () => {
  const [till, all] = [await eventReceiver(), await eventReceiver()];
  const hooks = [hook('till', { url: till.url })];
  const { rig, open, submit, settled } = shop(hooks);
  const first = await open();
  await settled(first, await submit(first, count('old')));
  await rig.run(first.stop());
  hooks[0] = hook('till', { url: till.url, events: ['order', 'change.rejected'] });
  hooks.push(hook('all', { url: all.url, events: ['change.rejected'], from: 'start' }));
  const second = await open();
  await submit(second, { externalId: 'GONE-1', subsidiaryId: 'sub-1', qty: 1, reference: 'new' });
  await arrived(rig, till, 1);
  await arrived(rig, all, 2);
  await rig.clock.advance(30_000);
  expect([references(till), references(all)]).toEqual([['new'], ['old', 'new']]);
});

it('a hook gets all rejected changes of a mirror that was made anew, under other ids', async () => {
  const receiver = await eventReceiver();
  const { rig, open, submit } = shop([hook('till', { url: receiver.url, ...REJECTIONS })]);
  const first = await open();
  await submit(first, count('a'));
  await arrived(rig, receiver, 1);
  await rig.run(first.stop());
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(path.join(rig.directory, `mirror.db${suffix}`), { force: true });
  }
  // A command makes the new mirror, and its change is rejected before the daemon starts.
  const services = await rig.services();
  const gone = { externalId: '', qty: 1 };
  const fault = { code: 'bad-value', column: null, message: 'externalId is empty.' } as const;
  await rig.run(services.outbox.submit([{ kind: 'stock', fault, value: gone, reference: 'b' }], 'cli'));
  await rig.run(services.close());
  await open();
  await arrived(rig, receiver, 2);
  expect(references(receiver)).toEqual(['a', 'b']);
  expect(receiver.seqs()).toEqual([1, 1]);
  expect(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size).toBe(2);
});

it('a hook is sent back, and skips, in the feed of rejected changes alone', async () => {
  const receiver = await eventReceiver();
  const settings = hook('till', { url: receiver.url, events: ['order', 'change.rejected'] });
  const { rig, open, submit, status } = shop([settings]);
  const daemon = await open();
  expect(await rig.announce(daemon, sampleNotification(1))).toBe(200);
  for (const n of [1, 2]) await submit(daemon, { externalId: `GONE-${n}`, subsidiaryId: 'sub-1', qty: n });
  await arrived(rig, receiver, 3);
  await until(() => status(daemon).waiting === 0);
  const { mirror } = daemon.services;
  const place = { name: 'till', event: 'change.rejected' } as const;
  const at = new Date(rig.clock.nowMs()).toISOString();
  await rig.run(mirror.write((db) => rewind(db, place, { from: 1, at })));
  await arrived(rig, receiver, 5);
  const ids = receiver.received.flatMap(({ event, headers }) =>
    'order' in event ? [] : [headers['webhook-id']],
  );
  expect(ids).toEqual([ids[0], ids[1], ids[0], ids[1]]);
  receiver.answer = 500;
  await submit(daemon, { externalId: 'GONE-3', subsidiaryId: 'sub-1', qty: 3 });
  await arrived(rig, receiver, 6);
  const { seq } = status(daemon, 'order');
  const skipped = await rig.run(mirror.write((db) => skipWaiting(db, settings, 'change.rejected', null)));
  expect(skipped).toMatchObject({ skipped: 1 });
  expect([status(daemon).waiting, status(daemon, 'order').seq]).toEqual([0, seq]);
});
