import { describe, expect, it } from 'vitest';
import { explainOrder } from '../../src/health/explain.ts';
import { assignOrder, assignStore, unassigned, unassignedOrders } from '../../src/link/assign.ts';
import { openChain } from './chain-rig.ts';

const idOf = (number: number) => `65a1${String(number).padStart(20, '0')}`;
const AT = '2026-03-01T12:00:00.000Z';
const STEPS = 'SELECT order_id, status FROM order_events ORDER BY seq';

describe('orders that name no known branch', () => {
  it('go down once a person says whose their store is, those of before and those to come', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch, other] = branches;
    await settle();
    for (const number of [1, 2]) await hub.order(number, 'B9');
    await hub.order(3, 'B8');
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 3, stores: ['B8', 'B9'] });
    expect(await hub.services.mirror.write((db) => assignStore(db, 'B9', 'B1', AT))).toBe(2);
    await hub.order(4, 'B9');
    await settle();
    await hub.order(1, 'B9', 'payment-approved');
    await settle();
    expect(branch.rows(STEPS)).toEqual([
      { order_id: idOf(1), status: 'pending' },
      { order_id: idOf(2), status: 'pending' },
      { order_id: idOf(4), status: 'pending' },
      { order_id: idOf(1), status: 'payment-approved' },
    ]);
    expect(other.orders()).toEqual([]);
    expect(hub.services.mirror.read((db) => unassignedOrders(db, 10))).toEqual([
      { orderId: idOf(3), store: 'B8' },
    ]);
  });

  it('can be given to a branch one by one, and then it alone books them', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch, other] = branches;
    await settle();
    for (const number of [1, 2]) await hub.order(number, 'B9');
    const assign = (number: number, to: string) =>
      hub.services.mirror.write((db) => assignOrder(db, idOf(number), to, AT));
    expect(await assign(1, 'B1')).toBe(true);
    expect(await assign(1, 'B1')).toBe(false);
    await expect(assign(1, 'B2')).rejects.toMatchObject({ code: 'usage' });
    await expect(assign(7, 'B1')).rejects.toMatchObject({ code: 'not-found' });
    await expect(assign(2, 'B7')).rejects.toMatchObject({ code: 'config-invalid' });
    await settle();
    await hub.order(1, 'B9', 'payment-approved');
    await settle();
    expect(branch.rows(STEPS)).toEqual([
      { order_id: idOf(1), status: 'pending' },
      { order_id: idOf(1), status: 'payment-approved' },
    ]);
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 1, stores: ['B9'] });
    const said = (number: number) =>
      hub.services.mirror.read((db) =>
        explainOrder(db, {
          orderId: idOf(number),
          hooks: [],
          branches: [],
          ledger: { reservedBy: () => [] },
        }),
      ).now;
    expect(said(1)).not.toContain('No branch has its store, so it went to none.');
    expect(said(2)).toContain('No branch has its store, so it went to none.');
    for (const each of [other, branch]) {
      await each.services.stores.write(({ reservations }) => reservations.acknowledge([idOf(1)], 'inbox'));
    }
    await other.follower.uploadOnce();
    expect(hub.rows('SELECT order_id FROM order_acks')).toEqual([]);
    await branch.follower.uploadOnce();
    expect(hub.rows('SELECT order_id FROM order_acks')).toEqual([{ order_id: idOf(1) }]);
  });

  it('stay with that branch after a restart of the hub, and are in its snapshot', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch] = branches;
    await settle();
    for (const number of [1, 2]) await hub.order(number, number === 1 ? 'B9' : 'B8');
    await hub.services.mirror.write((db) => assignStore(db, 'B9', 'B1', AT));
    await hub.services.mirror.write((db) => assignOrder(db, idOf(2), 'B1', AT));
    await settle();
    await hub.stop();
    await hub.start();
    await branch.stop();
    branch.loseMirror();
    await branch.start();
    await settle();
    expect(branch.orders().map((order) => (order as { order_id: string }).order_id)).toEqual([
      idOf(1),
      idOf(2),
    ]);
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 0, stores: [] });
  });

  it('are not taken from a branch that the configuration names', async () => {
    const { hub, settle } = await openChain();
    await settle();
    await hub.order(1, 'B2');
    await expect(hub.services.mirror.write((db) => assignStore(db, 'B2', 'B1', AT))).rejects.toMatchObject({
      code: 'usage',
    });
    await expect(hub.services.mirror.write((db) => assignOrder(db, idOf(1), 'B1', AT))).rejects.toMatchObject(
      {
        code: 'usage',
      },
    );
  });

  it('stay with the branch that a person gave them to, also once their store is a branch of its own', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch, other] = branches;
    await settle();
    await hub.order(1, 'B9');
    await hub.services.mirror.write((db) => assignOrder(db, idOf(1), 'B1', AT));
    await settle();
    // The order's store now belongs to B2, whose snapshot must not contain the order.
    await hub.services.mirror.write((db) =>
      db.prepare("INSERT INTO _feed_stores (store_id, branch) VALUES ('B9', 'B2')").run(),
    );
    await other.stop();
    other.loseMirror();
    await other.start();
    await hub.order(2, 'B9');
    await settle();
    expect(branch.rows(STEPS)).toEqual([{ order_id: idOf(1), status: 'pending' }]);
    expect(other.rows(STEPS)).toEqual([{ order_id: idOf(2), status: 'pending' }]);
  });

  it('are no more so once they name a branch', async () => {
    const { hub, branches, settle } = await openChain();
    await settle();
    await hub.order(1, 'B9');
    expect(hub.services.mirror.read(unassigned).orders).toBe(1);
    await hub.order(1, 'B1', 'payment-approved');
    await settle();
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 0, stores: [] });
    const assign = hub.services.mirror.write((db) => assignOrder(db, idOf(1), 'B2', AT));
    await expect(assign).rejects.toMatchObject({ code: 'usage' });
    expect(branches[1].orders()).toEqual([]);
  });

  it('are told while they are open, and still go down once their store has a branch', async () => {
    const { hub, branches, settle } = await openChain();
    const [branch] = branches;
    await settle();
    for (const number of [1, 2]) await hub.order(number, 'B9');
    await hub.order(2, 'B9', 'dispatched');
    await hub.order(3, 'B8', 'cancel');
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 1, stores: ['B9'] });
    await hub.order(1, 'B9', 'cancel');
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 0, stores: [] });
    expect(hub.services.mirror.read((db) => unassignedOrders(db, 10))).toEqual([]);
    await hub.hub.check();
    expect(hub.services.mirror.health.raised().map(({ key }) => key)).not.toContain('hub.unassigned');
    expect(await hub.services.mirror.write((db) => assignStore(db, 'B9', 'B1', AT))).toBe(2);
    await settle();
    expect(branch.rows('SELECT order_id, status FROM orders ORDER BY 1')).toEqual([
      { order_id: idOf(1), status: 'cancel' },
      { order_id: idOf(2), status: 'dispatched' },
    ]);
  });
});

const ONE_BRANCH = `
  [[branches]]
  subsidiary_id = "sub-1"
  external_id = "B1"`;

describe('open orders of a branch that the configuration does not have any more', () => {
  const lost = async () => {
    const chain = await openChain();
    const { hub, branches, settle } = chain;
    await settle();
    await hub.order(1, 'B2');
    await hub.order(2, 'B2');
    await hub.order(3, 'B2', 'dispatched');
    await settle();
    expect(branches[1].orders()).toHaveLength(3);
    hub.configure(ONE_BRANCH);
    await hub.stop();
    await hub.start();
    return chain;
  };

  it('are told as unassigned, those that it had as well as those that come, and not the ended ones', async () => {
    const { hub } = await lost();
    await hub.order(4, 'B2');
    expect(hub.services.mirror.read(unassigned)).toEqual({ orders: 3, stores: ['B2'] });
  });

  it('all go to the branch that their store is assigned to, also those that the lost one had', async () => {
    const { hub, branches, settle } = await lost();
    const [branch] = branches;
    await hub.order(4, 'B2');
    expect(await hub.services.mirror.write((db) => assignStore(db, 'B2', 'B1', AT))).toBe(3);
    await settle([branch]);
    expect(branch.rows<{ order_id: string }>(STEPS).map(({ order_id }) => order_id)).toEqual(
      [1, 2, 4].map(idOf),
    );
    expect(hub.services.mirror.read(unassigned).orders).toBe(0);
  });

  it('all are there once it comes back, with what happened to them meanwhile, though another one had its store', async () => {
    const { hub, branches, settle } = await lost();
    const [branch, back] = branches;
    await hub.services.mirror.write((db) => assignStore(db, 'B2', 'B1', AT));
    await hub.order(1, 'B2', 'payment-approved');
    await hub.order(4, 'B2');
    await settle([branch]);
    expect(branch.orders()).toHaveLength(3);
    hub.configure();
    await hub.stop();
    await hub.start();
    await settle();
    expect(back.rows(STEPS).slice(3)).toEqual([
      { order_id: idOf(1), status: 'payment-approved' },
      { order_id: idOf(4), status: 'pending' },
    ]);
    expect(hub.services.mirror.read(unassigned).orders).toBe(0);
    // After a restart there is nothing new to send.
    const said = hub.rows('SELECT count(*) AS n FROM _feed');
    await hub.stop();
    await hub.start();
    expect(hub.rows('SELECT count(*) AS n FROM _feed')).toEqual(said);
    await hub.order(2, 'B2', 'payment-approved');
    await settle();
    expect(back.rows(STEPS).slice(5)).toEqual([{ order_id: idOf(2), status: 'payment-approved' }]);
  });
});
