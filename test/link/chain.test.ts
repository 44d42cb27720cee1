/**
 * Tests src/link/hub.ts, src/link/hub-feed.ts, src/link/branch-download.ts, src/link/branch-upload.ts,
 * src/link/feed-pages.ts and src/orders/merging/branch-feed.ts.
 */

import { copyFileSync, rmSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { verdictOf } from '../../src/health/verdict.ts';
import { composed } from '../../src/link/feed-pages.ts';
import { unpublished } from '../../src/link/hub-feed.ts';
import type { DownMessage } from '../../src/link/link.ts';
import { forgetCustomer } from '../../src/orders/merging/anonymize.ts';
import { addToFeed, type SentOrder } from '../../src/orders/merging/branch-feed.ts';
import { compileSpellings } from '../../src/orders/merging/field-aliases.ts';
import { quarantine } from '../../src/orders/receiving/quarantine.ts';
import { WAITING_MAX } from '../../src/outbox/sending/call-plan.ts';
import { product } from '../outbox/outbox-fixture.ts';
import { fillLine } from '../outbox/waiting-line.ts';
import { seededRandom } from '../support/fake-clock.ts';
import { helloOf } from '../support/hello.ts';
import { SEED } from '../support/seed.ts';
import { type BranchStore, type Chain, GAP_MAX_MS, openChain } from './chain-rig.ts';

const EVENTS = `SELECT order_id, status, previous_status, source, observed_at FROM order_events e
  WHERE order_id IN (SELECT order_id FROM orders WHERE store_external_id = ?) ORDER BY seq`;
const idOf = (number: number) => `65a1${String(number).padStart(20, '0')}`;

/** Checks that the branch's mirror has the same orders as the hub's mirror has for this branch. */
function expectSame({ hub }: Chain, branch: BranchStore): void {
  expect(branch.orders()).toEqual(hub.orders(branch.name));
}

/** Returns the part of a store's catalogue that this branch sells: products, stocks and ids. */
function catalogOf(store: Chain['hub'] | BranchStore, subsidiaryId: string): unknown[][] {
  const has = `sku IN (SELECT sku FROM stocks WHERE subsidiary_id = '${subsidiaryId}')
    AND product_id IN (SELECT product_id FROM products WHERE vanished_at IS NULL)`;
  return [
    store.rows(`SELECT p.product_id, name, category, p.show, sku, price, s.show FROM products p
      JOIN skus s USING (product_id) WHERE ${has} ORDER BY sku`),
    store.rows(`SELECT sku, qty, k.show FROM stocks k JOIN skus s USING (sku)
      WHERE subsidiary_id = '${subsidiaryId}' AND ${has} ORDER BY sku`),
    store.rows(`SELECT sku, ext_id FROM integrations WHERE subsidiary_id = '${subsidiaryId}' ORDER BY sku`),
  ];
}

describe('what goes down', () => {
  it('is each order and each of its steps, at the branch that it is for', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    for (const number of [1, 2, 3]) await hub.order(number, number === 2 ? 'B2' : 'B1');
    await hub.order(1, 'B1', 'payment-approved');
    await hub.order(3, 'B1', 'payment-approved');
    await hub.order(1, 'B1', 'dispatched');
    await settle();
    for (const branch of branches) {
      expectSame(chain, branch);
      expect(branch.rows(EVENTS, branch.name)).toEqual(hub.rows(EVENTS, branch.name));
    }
    expect(branches[0].rows('SELECT seq FROM order_events')).toHaveLength(5);
  });

  it('has its numbers without a gap, and what is said twice counts once', async () => {
    const chain = await openChain();
    const { hub, branches, server, settle } = chain;
    await settle();
    server.lostAcknowledgements = 2;
    for (const number of [1, 2, 3, 4]) await hub.order(number, 'B1');
    await expect(hub.publish()).rejects.toMatchObject({ code: 'link-down' });
    await expect(hub.publish()).rejects.toMatchObject({ code: 'link-down' });
    await settle();
    expectSame(chain, branches[0]);
    expect(branches[0].rows('SELECT seq FROM order_events')).toHaveLength(4);
    const numbers = hub
      .rows<{ n: number }>("SELECT n FROM _feed WHERE branch = 'B1' ORDER BY n")
      .map(({ n }) => n);
    expect(numbers).toEqual(numbers.map((_, i) => i + 1));
  });

  it('is not taken in behind a gap until a snapshot comes, and then nothing is missing', async () => {
    const chain = await openChain();
    const { clock, hub, branches, server, settle } = chain;
    await settle();
    const [branch] = branches;
    for (const number of [1, 2, 3]) await hub.order(number, 'B1');
    await hub.publish();
    server.expire('B1', 2);
    await branch.follow();
    expect(branch.orders()).toEqual([]);
    await clock.advance(700_000);
    await settle();
    expectSame(chain, branch);
    expect(branch.orders()).toHaveLength(3);
    await hub.order(4, 'B1');
    await settle();
    expectSame(chain, branch);
  });

  it('is waited for when a part of it was lost on the way, without a snapshot', async () => {
    const chain = await openChain();
    const { clock, hub, branches, settle } = chain;
    await settle();
    const [branch] = branches;
    const snapshots = "SELECT count(*) AS n FROM _feed WHERE branch = 'B1' AND kind = 'snapshot-begin'";
    const before = hub.rows(snapshots);
    for (const number of [1, 2, 3]) await hub.order(number, 'B1');
    const entries = hub.services.mirror.read((db) => unpublished(db, 10).map((entry) => composed(db, entry)));
    const late = entries.slice(1);
    expect(await branch.follower.take(late)).toBe(false);
    await clock.advance(GAP_MAX_MS - 1);
    expect(await branch.follower.take(late)).toBe(false);
    expect(branch.orders()).toEqual([]);
    await settle();
    expectSame(chain, branch);
    expect(hub.rows(snapshots)).toEqual(before);
  });

  it('is said again when the server has lost it', async () => {
    const chain = await openChain();
    const { hub, branches, server, settle } = chain;
    await settle();
    await hub.order(1, 'B1');
    await hub.publish();
    server.lose();
    await hub.order(2, 'B1');
    await settle();
    expectSame(chain, branches[0]);
    expect(branches[0].rows('SELECT seq FROM order_events')).toHaveLength(2);
  });

  it('of another life of the hub begins with a snapshot: nothing is passed over for its number', async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    await hub.order(1, 'B1');
    await settle();
    await hub.stop();
    copyFileSync(hub.mirrorFile, `${hub.mirrorFile}.copy`);
    await hub.start();
    for (const number of [2, 3, 4]) await hub.order(number, 'B1');
    await settle();
    await hub.stop();
    hub.loseMirror();
    copyFileSync(`${hub.mirrorFile}.copy`, hub.mirrorFile);
    rmSync(`${hub.mirrorFile}.copy`);
    await hub.start();
    // These orders get the feed numbers that the lost orders 2 to 4 had.
    for (const number of [5, 6]) await hub.order(number, 'B1');
    await settle();
    const ids = branches[0].rows<{ order_id: string }>('SELECT order_id FROM orders ORDER BY order_id');
    expect(ids.map(({ order_id }) => order_id)).toEqual([1, 2, 3, 4, 5, 6].map(idOf));
  });

  it('is in a snapshot all that the hub has: open orders first, then the newest that ended', async () => {
    const chain = await openChain();
    const { clock, hub, branches, settle } = chain;
    await hub.order(1, 'B1', 'refund');
    await hub.order(2, 'B1');
    await clock.advance(100 * 86_400_000);
    for (const [number, status] of [
      [3, 'dispatched'],
      [4, 'pending'],
      [5, 'cancel'],
    ] as const) {
      await hub.order(number, 'B1', status);
    }
    await settle();
    expectSame(chain, branches[0]);
    const came = branches[0].rows<{ order_id: string }>('SELECT order_id FROM order_events ORDER BY seq');
    const all = hub.rows<{ order_id: string; ended_at: string | null }>(
      'SELECT order_id, ended_at FROM orders ORDER BY seq',
    );
    const open = all.filter(({ ended_at }) => ended_at === null);
    const ended = all.filter(({ ended_at }) => ended_at !== null).reverse();
    expect(ended).toHaveLength(3);
    expect(came.map(({ order_id }) => order_id)).toEqual([...open, ...ended].map(({ order_id }) => order_id));
  });

  it('goes on while a long snapshot is on its way, and an order that moves on is told once', {
    tags: ['bulk'],
  }, async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await Promise.all(Array.from({ length: 520 }, (_, i) => hub.order(i + 1, 'B1')));
    const [branch] = branches;
    await hub.publish();
    await branch.follower.hello();
    // The first call publishes the start of the snapshot. The second adds the first page to the feed, unpublished.
    await hub.hub.publish();
    await hub.hub.publish();
    await hub.order(7, 'B1', 'payment-approved');
    await hub.order(515, 'B1', 'payment-approved');
    await hub.order(515, 'B1', 'dispatched');
    const [written] = hub.rows<{ n: number }>('SELECT count(*) AS n FROM _feed WHERE n > 521');
    expect(written?.n).toBe(503);
    await settle();
    expectSame(chain, branch);
    expect(branch.rows('SELECT * FROM _held_notifications')).toEqual([]);
    const steps = 'SELECT status FROM order_events WHERE order_id = ? ORDER BY seq';
    expect(branch.rows(steps, idOf(7))).toEqual([{ status: 'payment-approved' }]);
    expect(branch.rows(steps, idOf(515))).toEqual([{ status: 'payment-approved' }, { status: 'dispatched' }]);
  });

  it('of an order that names no branch goes to nobody until its branch is known', async () => {
    const { hub, branches, settle } = await openChain();
    await settle();
    await hub.order(1, 'B9');
    await settle();
    expect(hub.orders()).toHaveLength(1);
    expect(branches.flatMap((branch) => branch.orders())).toEqual([]);
    expect(hub.rows('SELECT order_id FROM _unassigned_orders')).toEqual([{ order_id: idOf(1) }]);
  });

  it('leaves nothing of a customer who was forgotten, in the feed and at the branch', async () => {
    const { branches, settle, hub } = await openChain();
    await settle();
    await hub.order(1, 'B1');
    await settle();
    await hub.order(1, 'B1', 'dispatched');
    const spellings = compileSpellings({});
    await hub.services.mirror.write((db) =>
      forgetCustomer(db, idOf(1), spellings, '2026-03-01T00:00:00.000Z'),
    );
    const named = "SELECT count(*) AS n FROM _feed WHERE instr(body, 'ana@example.com') > 0";
    expect(hub.rows(named)).toEqual([{ n: 0 }]);
    await settle();
    const [branch] = branches;
    expect(branch.rows('SELECT status, customer_email, customer_first_name FROM orders')).toEqual([
      { status: 'dispatched', customer_email: null, customer_first_name: null },
    ]);
    const payloads = "SELECT count(*) AS n FROM _order_payloads WHERE instr(payload, 'ana@example.com') > 0";
    expect(branch.rows(payloads)).toEqual([{ n: 0 }]);
  });

  it('without the customer, who was forgotten meanwhile, is no step of its own', async () => {
    const { branches, settle, hub } = await openChain();
    await settle();
    const [branch] = branches;
    await hub.order(1, 'B1', 'dispatched');
    await settle();
    const before = branch.rows('SELECT order_id, status FROM order_events');
    // Adds the order to the branch's feed once more. The hub sends it only after the customer was removed.
    await hub.services.mirror.write((db) => {
      const body = JSON.parse(
        db.prepare("SELECT body FROM _feed WHERE kind = 'order' AND branch = 'B1'").pluck().get() as string,
      ) as SentOrder;
      addToFeed(db, 'B1', 'order', body, { at: body.observedAt, orderId: idOf(1) });
    });
    await hub.services.mirror.customers.forgetAll([idOf(1)]);
    await settle();
    expect(branch.rows('SELECT order_id, status FROM order_events')).toEqual(before);
    expect(branch.rows('SELECT customer_email FROM orders')).toEqual([{ customer_email: null }]);
  });

  it('and cannot be applied is kept for a person, and what follows goes on', async () => {
    const { branches, settle, hub } = await openChain();
    await settle();
    await hub.order(1, 'B1');
    await settle();
    const [branch] = branches;
    const [{ epoch, mark } = { epoch: '', mark: 0 }] = branch.rows<{ epoch: string; mark: number }>(
      'SELECT epoch, mark FROM _link',
    );
    const bad: DownMessage = { branch: 'B1', epoch, n: mark + 1, kind: 'order', body: '{"reading":{}}' };
    await branch.follower.take([bad]);
    expect(branch.rows('SELECT mark FROM _link')).toEqual([{ mark: mark + 1 }]);
    expect(branch.rows('SELECT reason FROM quarantine')).toEqual([
      { reason: `Entry ${mark + 1} of the hub (order) could not be applied.` },
    ]);
  });
});

describe('a branch that says hello', () => {
  const saying = async () => {
    const chain = await openChain();
    await chain.settle();
    const [{ epoch, mark, line } = { epoch: '', mark: 0, line: '' }] = chain.branches[1].rows<{
      epoch: string;
      mark: number;
      line: string;
    }>('SELECT epoch, mark, line FROM _link');
    const hello = (more: object) => {
      const body = helloOf({ instance: 'liar', epoch, mark, line, ...more });
      return chain.hub.hub.answer('B2', 'hello', Buffer.from(JSON.stringify(body)));
    };
    const count = (sql: string) => chain.hub.rows<{ n: number }>(sql)[0]?.n ?? 0;
    return { ...chain, hello, count, mark };
  };

  it('that it heard more than there is begins a new life of its own feed: no other branch loses its place', async () => {
    const { hub, branches, hello, settle } = await saying();
    await hub.order(1, 'B1');
    await settle();
    const place = () => branches[0].rows('SELECT epoch, mark FROM _link');
    const lives = () =>
      hub.rows<{ hub: string; own: string | null }>(
        "SELECT h.epoch AS hub, b.epoch AS own FROM _hub h, _feed_branches b WHERE branch = 'B2'",
      )[0];
    const before = { place: place(), hub: lives()?.hub };
    for (let times = 0; times < 30; times++)
      await hello({ mark: 1e9 + times, epoch: lives()?.own ?? lives()?.hub });
    expect(lives()).toMatchObject({ hub: before.hub, own: expect.any(String) });
    await branches[0].follower.hello();
    await hub.publish();
    await branches[0].follow();
    expect(place()).toEqual(before.place);
    expect(hub.rows("SELECT 1 FROM _feed WHERE branch = 'B1' AND kind = 'snapshot-begin'")).toHaveLength(1);
    await hub.hub.check();
    expect(hub.services.mirror.health.raised().find(({ key }) => key === 'hub.misuse')?.message).toMatch(
      /^Branch B2 says/,
    );
    // The restarted branch follows the new epoch from its snapshot on.
    await branches[1].stop();
    await branches[1].start();
    await hub.order(2, 'B2');
    await settle();
    expect(branches[1].orders()).toEqual(hub.orders('B2'));
    expect(place()).toEqual(before.place);
  });

  it('that it heard more than there is, as another one does, begins a new life for all: the hub is an older copy', async () => {
    const { hub, branches, hello, settle } = await saying();
    await hub.order(1, 'B1');
    await settle();
    const epoch = () => hub.rows<{ epoch: string }>('SELECT epoch FROM _hub')[0]?.epoch;
    const before = epoch();
    await hello({ mark: 1e9 });
    expect(epoch()).toBe(before);
    await branches[0].services.mirror.write((db) => db.exec('UPDATE _link SET mark = 1000'));
    await branches[0].follower.hello();
    expect(epoch()).not.toBe(before);
    expect(hub.rows('SELECT 1 FROM _feed_branches WHERE epoch IS NOT NULL')).toEqual([]);
    await branches[1].stop();
    await branches[1].start();
    await settle();
    expect(branches[0].orders()).toEqual(hub.orders('B1'));
  });

  it('and a number that no branch can have given is refused, named, and harms neither it nor its name', async () => {
    const { hub, branches, hello, settle } = await saying();
    await hub.order(1, 'B2');
    await settle();
    const known = () => hub.rows("SELECT seq, leased_seq FROM _feed_branches WHERE branch = 'B2'");
    const before = known();
    for (const seq of [2 ** 53 - 1, 2 ** 40 + 1, 2 ** 39]) {
      const answer = JSON.parse((await hello({ seq })) ?? '') as { refused?: { code: string } };
      expect(answer.refused?.code).toBe('unreadable');
    }
    for (const mark of [2 ** 53 - 1, -1, 0.5]) expect(await hello({ mark })).toContain('refused');
    expect(known()).toEqual(before);
    await hub.hub.check();
    expect(hub.services.mirror.health.raised().find(({ key }) => key === 'hub.misuse')?.message).toContain(
      'Branch B2 names numbers that it cannot have given.',
    );
    await hub.order(2, 'B2');
    await settle();
    expect(branches[1].orders()).toEqual(hub.orders('B2'));
    // A forged snapshot does not make the branch follow another epoch.
    const message = { branch: 'B2', epoch: 'other', n: 2 ** 53 - 1, kind: 'snapshot-begin', body: '{}' };
    await branches[1].follower.take([message]);
    expect(branches[1].rows<{ epoch: string }>('SELECT epoch FROM _link')[0]?.epoch).not.toBe('other');
  });

  it('on a new line each time gets a few snapshots a minute', async () => {
    const { clock, hello, count } = await saying();
    const snapshots = () =>
      count("SELECT count(*) AS n FROM _feed WHERE branch = 'B2' AND kind = 'snapshot-begin'");
    const before = snapshots();
    for (let times = 0; times < 50; times++) await hello({ epoch: null, mark: 0, line: `line-${times}` });
    expect(snapshots() - before).toBeLessThanOrEqual(10);
    await clock.advance(60_000);
    await hello({ epoch: null, mark: 0, line: 'later' });
    expect(snapshots() - before).toBeGreaterThan(1);
  });

  it('says that its changes arrived where only the answer was lost', async () => {
    const { branches, server, settle } = await openChain();
    await settle();
    const [branch] = branches;
    const over = new AbortController();
    const handing = branch.follower.upload(over.signal, () => {});
    const push = () =>
      branch.services.mirror.health.freshness().find(({ subject }) => subject === 'outbox.push')?.state;
    await branch.clock.advance(2_000);
    server.lostAnswers = 1;
    await branch.count('P1', 5, 'count');
    await branch.clock.advance(1_000);
    expect(push()).toBe('failing');
    await branch.clock.advance(60_000);
    over.abort();
    await handing;
    expect(push()).not.toBe('failing');
  });
});

describe('what goes up', () => {
  it('is one value for each product, however long it waited', async () => {
    const { branches, hub, server, settle } = await openChain();
    await settle();
    const [branch] = branches;
    server.isDown = true;
    for (let qty = 0; qty < 50; qty++) await branch.count(`P${qty % 2}`, qty, `count-${qty}`);
    await settle();
    const got = hub.rows(`SELECT json_extract(body, '$.externalId') AS id, json_extract(body, '$.qty') AS qty,
      json_extract(body, '$.subsidiaryId') AS branch, state FROM _outbox ORDER BY id`);
    expect(got).toEqual([
      { id: 'P0', qty: 48, branch: 'sub-1', state: 'pending' },
      { id: 'P1', qty: 49, branch: 'sub-1', state: 'pending' },
    ]);
  });

  it('is taken in once when the answer is lost', async () => {
    const { branches, hub, server, settle } = await openChain();
    await settle();
    const [branch] = branches;
    await branch.count('P1', 5, 'first');
    server.lostAnswers = 1;
    await expect(branch.follower.uploadOnce()).rejects.toMatchObject({ code: 'link-down' });
    await branch.stop();
    await branch.start();
    await branch.count('P1', 7, 'second');
    await settle();
    expect(hub.rows("SELECT json_extract(body, '$.qty') AS qty FROM outbox WHERE state = 'pending'")).toEqual(
      [{ qty: 7 }],
    );
    expect(branch.rows('SELECT reference, state FROM outbox ORDER BY change_id')).toEqual([
      { reference: 'first', state: 'superseded' },
      { reference: 'second', state: 'sending' },
    ]);
  });

  it('waits at the branch while the hub has as many of it as may wait; sold out goes up all the same', async () => {
    const { branches, hub, clock, settle } = await openChain();
    await hub.order(1, 'B1');
    await settle();
    const [branch, other] = branches;
    await hub.services.mirror.write((db) => fillLine(db, 'sub-1', WAITING_MAX - 2));
    for (let i = 0; i < 5; i++) await branch.count(`P${i}`, 5, `count-${i}`);
    await branch.services.outbox.acknowledge([idOf(1)], 'http');
    await branch.follower.uploadOnce();
    const mine = () =>
      hub.rows<{ id: string; qty: number }>(`SELECT json_extract(body, '$.externalId') AS id,
        json_extract(body, '$.qty') AS qty FROM outbox WHERE reference LIKE 'B1: %' ORDER BY id`);
    expect(mine()).toEqual([
      { id: 'P0', qty: 5 },
      { id: 'P1', qty: 5 },
    ]);
    const waiting = () =>
      branch.rows<{ n: number }>("SELECT count(*) AS n FROM outbox WHERE state = 'pending'");
    expect(waiting()).toEqual([{ n: 3 }]);
    expect(branch.rows("SELECT state FROM freshness WHERE subject = 'outbox.push'")).toEqual([
      { state: 'waiting' },
    ]);

    // Newer values are merged with the waiting ones, and only sold-out changes are sent. The other branch has a queue
    // of its own.
    await branch.count('P2', 7, 'newer');
    await branch.count('P3', 0, 'sold out');
    await other.count('Q1', 1, 'other');
    await settle();
    expect(mine()).toContainEqual({ id: 'P3', qty: 0 });
    expect(hub.rows("SELECT 1 FROM outbox WHERE reference = 'B2: other'")).toHaveLength(1);
    expect(hub.rows('SELECT 1 FROM order_acks')).toEqual([]);
    expect(waiting()).toEqual([{ n: 2 }]);

    await hub.services.mirror.write((db) =>
      db.prepare("UPDATE _outbox SET state = 'done', settled_at = created_at WHERE reference IS NULL").run(),
    );
    await clock.advance(5_000);
    await settle();
    expect(mine()).toEqual([
      { id: 'P0', qty: 5 },
      { id: 'P1', qty: 5 },
      { id: 'P2', qty: 7 },
      { id: 'P3', qty: 0 },
      { id: 'P4', qty: 5 },
    ]);
    expect(hub.rows('SELECT order_id FROM order_acks')).toEqual([{ order_id: idOf(1) }]);
    expect(branch.rows("SELECT state FROM freshness WHERE subject = 'outbox.push'")).toEqual([
      { state: 'ok' },
    ]);
  });

  it('gets its final word under the reference of the POS', async () => {
    const { branches, hub, settle } = await openChain();
    await settle();
    const [branch] = branches;
    await branch.count('P1', 5, 'mine');
    await settle();
    await hub.services.mirror.write((db) =>
      db
        .prepare(
          "UPDATE _outbox SET state = 'rejected', message = 'No such product.', settled_at = '2026-01-01'",
        )
        .run(),
    );
    await settle();
    // The outcome is also in the branch's own feed of settled changes, so a hook at the branch gets it.
    expect(branch.rows('SELECT reference, state, message, settled_seq FROM outbox')).toEqual([
      { reference: 'mine', state: 'rejected', message: 'No such product.', settled_seq: 1 },
    ]);
  });

  it('of another branch, or a price without the right, is refused by name', async () => {
    const { branches, hub, settle } = await openChain();
    await settle();
    const [one, two] = branches;
    for (const branch of [one, two]) {
      await branch.services.stores.write(({ intake }) =>
        intake.accept(
          [
            { kind: 'stock', change: { externalId: 'P1', qty: 1, subsidiaryExternalId: 'B2' } },
            { kind: 'product', change: { externalId: 'P1', price: 990 } },
          ],
          { source: 'inbox', guards: branch.services.config.guard },
        ),
      );
    }
    await settle();
    const states = 'SELECT kind, state FROM outbox ORDER BY kind';
    expect(one.rows(states)).toEqual([
      { kind: 'product', state: 'rejected' },
      { kind: 'stock', state: 'rejected' },
    ]);
    expect(two.rows(states)).toEqual([
      { kind: 'product', state: 'sending' },
      { kind: 'stock', state: 'sending' },
    ]);
    expect(hub.rows('SELECT kind FROM outbox')).toHaveLength(2);
  });

  it('books orders of the branch, and none of another one', async () => {
    const { hub, branches, settle } = await openChain();
    await settle();
    for (const [number, store] of ['B1', 'B2'].entries()) await hub.order(number + 1, store);
    await settle();
    const [branch] = branches;
    await branch.services.stores.write(({ reservations }) =>
      reservations.acknowledge([idOf(1), idOf(2), ` ${idOf(2)}`], 'inbox'),
    );
    await settle();
    expect(hub.rows('SELECT order_id, source FROM order_acks')).toEqual([
      { order_id: idOf(1), source: 'branch' },
    ]);
    expect(await branch.follower.uploadOnce()).toBe(false);
  });

  it('tells how the branch fares, in its own words', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch] = branches;
    branch.verdict = verdictOf({
      nowMs: 0,
      freshness: [],
      alarms: [],
      tokens: null,
      outbox: null,
      quarantine: 3,
      ordersStaleAfterMs: 0,
    });
    await branch.services.mirror.write((db) =>
      quarantine(db, { source: 'webhook', receivedAtMs: 0, reason: 'It cannot be read.', payload: '{}' }),
    );
    await branch.count('A', -1e300, 'below all numbers');
    await settle();
    const said = (name: string) =>
      hub.services.state.hub.branches().find((each) => each.branch === name)?.report;
    expect(said('B1')).toMatchObject({
      verdict: { level: 'amber', finding: 'quarantine' },
      quarantined: 1,
      rejected: 1,
      waiting: 0,
    });
    expect(said('B2')).toMatchObject({
      verdict: { level: 'green', finding: null },
      quarantined: 0,
      rejected: 0,
    });
  });

  it('waits with an acknowledgement for its order, and drops it when the order is of another branch', async () => {
    const { hub, branches, settle } = await openChain();
    await settle();
    const [branch] = branches;
    await branch.services.stores.write(({ reservations }) =>
      reservations.acknowledge([idOf(1), idOf(2), idOf(3)], 'inbox'),
    );
    await settle();
    expect(hub.rows('SELECT order_id FROM order_acks')).toEqual([]);
    await hub.order(1, 'B1');
    await hub.order(2, 'B2');
    await settle();
    expect(hub.rows('SELECT order_id, source FROM order_acks')).toEqual([
      { order_id: idOf(1), source: 'branch' },
    ]);
    expect(hub.rows('SELECT order_id FROM _waiting_acks')).toEqual([{ order_id: idOf(3) }]);
    expect(branch.rows('SELECT order_id, message FROM refused_acks')).toEqual([
      { order_id: idOf(2), message: `Order ${idOf(2)} is of another branch.` },
    ]);
    expect(branch.rows('SELECT order_id FROM order_acks').length).toBe(2);
  });

  it('is heard from one machine alone: the older of two with one key is told', async () => {
    const { branches, clock, server, settle } = await openChain();
    await settle();
    const [branch] = branches;
    const { mirror, stores } = branch.services;
    const { BranchFollower } = await import('../../src/link/branch.ts');
    const { silentLog } = await import('../../src/core/log.ts');
    const twin = new BranchFollower({
      ...{
        link: server.branch('B1'),
        mirror,
        stores,
        spellings: compileSpellings({}),
        version: '0',
        verdict: () => branch.verdict,
        outboxKeptMs: 0,
        onOrders: () => {},
        onHubClock: () => {},
      },
      clock,
      log: silentLog,
    });
    await twin.hello();
    await expect(branch.follower.hello()).rejects.toMatchObject({ code: 'link-refused' });
    await twin.hello();
  });
});

const RUNS = Number(process.env.TILLSYNC_RUNS ?? 1);
const STEPS = process.env.TILLSYNC_RUNS === undefined ? 60 : 120;
const STATUSES = ['pending', 'payment-approved', 'inProcess', 'ready', 'dispatched'];

describe('whatever happens in between', () => {
  it.each(Array.from({ length: RUNS }, (_, i) => SEED + i))(
    'in the end every branch has its orders, and the hub the newest counts: seed %i',
    async (seed) => {
      const chain = await openChain();
      const { clock, hub, branches, server, settle } = chain;
      const random = seededRandom(seed);
      const pick = <T>(list: readonly T[]): T => list[Math.floor(random.next() * list.length)] as T;
      const stages = new Map<number, number>();
      const counted = new Map<string, number>();
      let next = 1;
      await settle();
      const steps: (() => Promise<void>)[] = [
        async () => {
          stages.set(next, 0);
          await hub.order(next, next % 2 === 0 ? 'B2' : 'B1');
          next += 1;
        },
        async () => {
          const [number, stage] = pick([...stages, [0, 4] as const]);
          if (stage >= 4) return;
          stages.set(number, stage + 1);
          await hub.order(number, number % 2 === 0 ? 'B2' : 'B1', STATUSES[stage + 1]);
        },
        async () => {
          const sold = Array.from({ length: 5 }, (_, i) => i).filter(() => random.next() < 0.8);
          await hub.sweep(
            sold.map((i) => {
              const stocks = Object.fromEntries(
                ['sub-1', 'sub-2']
                  .filter(() => random.next() < 0.8)
                  .map((id) => [id, [`E${i}`, Math.floor(random.next() * 3)] as [string, number]]),
              );
              const price = 100 * Math.floor(random.next() * 3);
              return product(`p${i}`, `Product ${i}`, [{ sku: `1${i}`, price, stocks }]);
            }),
          );
        },
        () => hub.publish(),
        () => pick(branches).follow(),
        () => pick(branches).follower.hello(),
        async () => void (await pick(branches).follower.uploadOnce()),
        async () => {
          const branch = pick(branches);
          const [product, qty] = [`P${Math.floor(random.next() * 4)}`, Math.floor(random.next() * 100)];
          await branch.count(product, qty, `${product}-${qty}`);
          counted.set(`${branch.name} ${product}`, qty);
        },
        async () => {
          const branch = pick(branches);
          await branch.stop();
          if (random.next() < 0.3 && !counted.size) branch.loseMirror();
          await branch.start();
        },
        async () => {
          await hub.stop();
          await hub.start();
        },
        async () => server.lose(),
        async () => server.expire(pick(branches).name, 3),
        async () => {
          server.isDown = !server.isDown;
        },
        async () => {
          server.lostAnswers = 1;
          server.lostAcknowledgements = 1;
        },
        () => clock.advance(random.next() * 400_000),
      ];
      for (let step = 0; step < STEPS; step++) {
        await pick(steps)().catch((error: { code?: string }) => {
          if (error.code !== 'link-down' && error.code !== 'link-refused') throw error;
        });
      }
      await settle();
      await clock.advance(700_000);
      await settle();
      for (const [i, branch] of branches.entries()) {
        expectSame(chain, branch);
        expect(catalogOf(branch, `sub-${i + 1}`)).toEqual(catalogOf(hub, `sub-${i + 1}`));
        expect(branch.rows(`SELECT * FROM stocks WHERE subsidiary_id <> 'sub-${i + 1}'`)).toEqual([]);
      }
      const newest = hub.rows<{ key: string; qty: number }>(
        `SELECT replace(json_extract(body, '$.subsidiaryId'), 'sub-', 'B') || ' ' || json_extract(body, '$.externalId') AS key,
           json_extract(body, '$.qty') AS qty FROM outbox WHERE state = 'pending'`,
      );
      expect(new Map(newest.map(({ key, qty }) => [key, qty]))).toEqual(counted);
    },
    60_000,
  );
});
