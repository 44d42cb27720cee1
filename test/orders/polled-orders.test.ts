import { describe, expect, it } from 'vitest';
import { areOrdersStale } from '../../src/app/read-only-services.ts';
import { FINDINGS } from '../../src/health/findings.ts';
import type { OrderStatus } from '../../src/orders/merging/order.ts';
import type { Transport, TransportAnswer } from '../../src/platform/transport.ts';
import { FreezableClock, storeRig, type Tamper } from '../support/store-rig.ts';

type TransportRequest = Parameters<Transport['send']>[0];

const DAY_MS = 86_400_000;

const isList = (request: TransportRequest) => request.path.startsWith('/order/all');
const json = (body: unknown): TransportAnswer => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  bytes: Buffer.from(JSON.stringify(body)),
});

/** Records the query of each poll, in the order of the polls. */
function asked(): { queries: URLSearchParams[]; tamper: Tamper } {
  const queries: URLSearchParams[] = [];
  return {
    queries,
    tamper(request, pass) {
      if (isList(request)) queries.push(new URLSearchParams(request.path.split('?')[1]));
      return pass();
    },
  };
}

const statusOf = (rig: ReturnType<typeof storeRig>, orderId: string) =>
  rig.rows<{ status: string }>('SELECT status FROM orders WHERE order_id = ?', orderId)[0]?.status;
const freshness = (rig: ReturnType<typeof storeRig>) =>
  rig.rows<{ state: string }>("SELECT state FROM freshness WHERE subject = 'orders.poll'")[0]?.state;
const alarms = (rig: ReturnType<typeof storeRig>) =>
  rig.rows<{ key: string }>('SELECT key FROM alarms').map(({ key }) => key);

describe('a poll', () => {
  it('that was overtaken by another process while it stood still is left unused', async () => {
    const rig = storeRig();
    const { internalOrderId } = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    const clock = new FreezableClock(rig.clock);
    const still = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (isList(request)) await clock.frozen();
      return answer;
    }, clock);
    const other = await rig.services();
    const late = still.orderPoll.poll().catch((error) => error.code);
    await rig.clock.advance(610_000);
    rig.sandbox.control.advanceOrder(internalOrderId, 'dispatched');
    await rig.run(other.orderPoll.poll());
    clock.thaw();
    expect(await rig.run(late)).toBe('lease-lost');
    expect(statusOf(rig, internalOrderId)).toBe('dispatched');
  });

  it('does not undo what a callback said while its answer was on its way', async () => {
    const rig = storeRig();
    const daemon = await rig.daemon(async (request, pass) => {
      const answer = await pass();
      if (isList(request)) await rig.clock.sleep(6_000);
      return answer;
    });
    const order = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    await rig.clock.advance(1_000);
    expect(rig.sandbox.control.calls('order.all')).toHaveLength(1);
    const newer = rig.sandbox.control.advanceOrder(order.internalOrderId, 'dispatched');
    expect(await rig.announce(daemon, newer)).toBe(200);
    await rig.clock.advance(8_000);
    expect(statusOf(rig, order.internalOrderId)).toBe('dispatched');
  });

  it('has the last word on what a callback said before it left, though it had begun to wait', async () => {
    const rig = storeRig();
    const daemon = await rig.daemon(async (request, pass) => {
      if (request.path === '/token/refresh') await rig.clock.sleep(6_000);
      return pass();
    });
    await rig.clock.advance(2_000);
    const order = rig.sandbox.control.createOrder({ status: 'pending' }, { hidden: true });
    expect(await rig.announce(daemon, order)).toBe(200);
    rig.sandbox.control.advanceOrder(order.internalOrderId, 'ready');
    await rig.clock.advance(5_000);
    expect(rig.sandbox.control.calls('order.all')).toHaveLength(1);
    expect(statusOf(rig, order.internalOrderId)).toBe('ready');
  });

  it('whose answer has no list of orders is not taken for an empty one', async () => {
    const rig = storeRig();
    const services = await rig.services(async (request, pass) =>
      isList(request) ? json({ success: true, data: { news: 'moved' } }) : pass(),
    );
    await expect(rig.run(services.orderPoll.poll())).rejects.toMatchObject({ code: 'platform-garbled' });
    await rig.clock.advance(1_000);
    expect(freshness(rig)).toBe('failing');
    // A proxy's error page is usually gone within minutes. If it stays, an alarm is raised.
    expect(alarms(rig)).not.toContain('orders.unreadable');
    await rig.clock.advance(6 * 60_000);
    await expect(rig.run(services.orderPoll.poll())).rejects.toMatchObject({ code: 'platform-garbled' });
    await rig.clock.advance(1_000);
    expect(alarms(rig)).toContain('orders.unreadable');
  });

  it('reads the orders of every day and status, and says which lists it leaves', async () => {
    const rig = storeRig();
    const of = (_id: string) => ({ _id, status: 'ready', total: 5, createdAt: '2026-01-15T12:00:00Z' });
    let answer: unknown = {
      data: { '2026-01-14': [of('a')], '2026-01-15': [of('b'), of('c')] },
      news: [{ n: 1 }],
    };
    const { orderPoll } = await rig.services(async (request, pass) =>
      isList(request) ? json(answer) : pass(),
    );
    const polled = async () => {
      const report = await rig.run(orderPoll.poll());
      await rig.clock.advance(1_000);
      return report;
    };
    expect(await polled()).toMatchObject({
      records: 3,
      created: 3,
      unreadLists: [{ path: 'news', records: 1, mayBeOrders: false }],
    });
    expect(alarms(rig)).toEqual([]);
    answer = { pending: [of('a')], ready: [of('b'), of('a'), of('d')] };
    expect(await polled()).toMatchObject({
      records: 4,
      repeated: 1,
      created: 1,
      confirmed: 2,
      superseded: 0,
    });
    const { total: _total, ...bare } = of('e');
    const all = ['a', 'b', 'c', 'd'].map(of);
    answer = { ready: all, archive: [{ ...bare, code: 5, one: 1, two: 2, three: 3, four: 4 }] };
    expect(await polled()).toMatchObject({ records: 4, confirmed: 4 });
    expect(alarms(rig)).toEqual(['orders.lists']);
    expect(freshness(rig)).toBe('degraded');
    answer = { ready: all };
    await polled();
    expect(alarms(rig)).toEqual([]);
  });

  it.each([
    ['', ['orders.lists']],
    ['data.orders', []],
  ])(
    'leaves payments beside its orders, and says how their alarm ends: with list_path %j',
    async (listPath, raised) => {
      const rig = storeRig({ config: (same) => ({ ...same, orders: { ...same.orders, listPath } }) });
      const date = '2026-01-15T12:00:00Z';
      const items = [{ product: { name: 'x' }, amount: 1 }];
      const orders = [{ _id: 'a', status: 'ready', code: 1, total: 5, createdAt: date, items }];
      const payments = [{ _id: 'p', status: 'paid', total: 5, amount: 5, date }];
      const { orderPoll } = await rig.services(async (request, pass) =>
        isList(request) ? json({ data: { orders, payments } }) : pass(),
      );
      expect(await rig.run(orderPoll.poll())).toMatchObject({ created: 1 });
      await rig.clock.advance(1_000);
      expect(alarms(rig)).toEqual(raised);
      expect(FINDINGS['orders.lists'].remedy).toContain('platform.quirks.list_path');
    },
  );

  it('takes nothing in the place of a list for no orders, and says why the platform refuses', async () => {
    const rig = storeRig();
    let answer: unknown = { success: true, data: null };
    const { orderPoll } = await rig.services(async (request, pass) =>
      isList(request) ? json(answer) : pass(),
    );
    expect(await rig.run(orderPoll.poll())).toMatchObject({ records: 0, unreadLists: [] });
    await rig.clock.advance(1_000);
    expect([freshness(rig), alarms(rig)]).toEqual(['ok', []]);
    answer = { success: false, message: 'The dates are too far apart.', data: [] };
    const refusal = { code: 'platform-refused', message: 'The dates are too far apart.' };
    await expect(rig.run(orderPoll.poll())).rejects.toMatchObject(refusal);
    await rig.clock.advance(1_000);
    expect(rig.rows("SELECT state, message FROM freshness WHERE subject = 'orders.poll'")).toEqual([
      { state: 'failing', message: refusal.message },
    ]);
  });

  it('of few days does not end what one of more days found, also after a restart', async () => {
    const rig = storeRig({ platform: { shape: { envelope: 'docs' } } });
    // The days long ago have more pages than are asked for, and a record that is no order.
    let oddUntil = '';
    const tamper: Tamper = async (request, pass) => {
      const answer = await pass();
      if (!isList(request)) return answer;
      const from = new URLSearchParams(request.path.split('?')[1]).get('startDate') ?? '';
      if (from > oddUntil) return answer;
      const { data, ...rest } = JSON.parse(Buffer.from(answer.bytes).toString());
      return json({ ...rest, data: { ...data, docs: [...data.docs, { total: 1 }], hasNextPage: true } });
    };
    const createdAtMs = rig.clock.nowMs() - 20 * DAY_MS;
    rig.sandbox.control.createOrder({ status: 'pending', createdAtMs }, { hidden: true });
    rig.sandbox.control.createOrder({}, { hidden: true });
    let { orderPoll } = await rig.services(tamper);
    const raised = async (request: Parameters<typeof orderPoll.poll>[0]) => {
      await rig.run(orderPoll.poll(request));
      await rig.clock.advance(1_000);
      return alarms(rig).sort();
    };
    await raised({ window: { startDate: '2025-12-20', endDate: '2026-01-16' } });
    const both = ['orders.more-pages', 'orders.unreadable'];
    oddUntil = '2025-12-26';
    expect(await raised({ wide: true })).toEqual(both);
    expect(await raised({})).toEqual(both);
    ({ orderPoll } = await rig.services(tamper));
    expect(await raised({ runningDay: true })).toEqual(both);
    oddUntil = '';
    expect(await raised({})).toEqual(both);
    expect(await raised({ wide: true })).toEqual([]);
    // A poll of the look-back ends what another one found.
    oddUntil = '2026-01-16';
    expect(await raised({})).toEqual(both);
    oddUntil = '';
    expect(await raised({ runningDay: true })).toEqual(both);
    expect(await raised({})).toEqual([]);
  });

  it('of the look-back ends what a wide one of the same days found', async () => {
    const rig = storeRig({ platform: { shape: { envelope: 'docs' } } });
    let isOdd = true;
    const { orderPoll } = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (!isOdd || !isList(request)) return answer;
      const { data, ...rest } = JSON.parse(Buffer.from(answer.bytes).toString());
      return json({ ...rest, data: { ...data, docs: [...data.docs, { total: 1 }], hasNextPage: true } });
    });
    rig.sandbox.control.createOrder({}, { hidden: true });
    await rig.run(orderPoll.poll({ wide: true }));
    expect(alarms(rig)).toEqual(expect.arrayContaining(['orders.more-pages', 'orders.unreadable']));
    isOdd = false;
    await rig.run(orderPoll.poll());
    await rig.clock.advance(1_000);
    expect(alarms(rig)).toEqual([]);
  });

  it('asks for each further page once, and ends with an empty one whatever that promises', async () => {
    const config = { pageParameter: 'page' };
    const rig = storeRig({
      platform: { shape: { envelope: 'docs', pageSize: 2 } },
      config: (same) => ({ ...same, quirks: { ...same.quirks, ...config } }),
    });
    for (let i = 0; i < 5; i++) rig.sandbox.control.createOrder({}, { hidden: true });
    const pages: string[] = [];
    const services = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (!isList(request)) return answer;
      pages.push(new URLSearchParams(request.path.split('?')[1]).get('page') ?? 'first');
      const body = JSON.parse(Buffer.from(answer.bytes).toString());
      return json({ ...body, data: { ...body.data, hasNextPage: true } });
    });
    expect(await rig.run(services.orderPoll.poll())).toMatchObject({ created: 5 });
    expect(pages).toEqual(['first', '2', '3', '4']);
    expect(rig.rows('SELECT 1 FROM orders')).toHaveLength(5);
  });

  it('of days that a person named says nothing of how today fares', async () => {
    const rig = storeRig();
    const services = await rig.services();
    rig.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'order.all', times: 1 });
    await expect(rig.run(services.orderPoll.poll())).rejects.toMatchObject({ code: 'platform-failed' });
    await rig.clock.advance(300_000);
    const window = { startDate: '2025-12-20', endDate: '2025-12-21' };
    await rig.run(services.orderPoll.poll({ window }));
    await rig.clock.advance(1_000);
    expect(freshness(rig)).toBe('failing');
    await rig.clock.advance(300_000);
    await rig.run(services.orderPoll.poll());
    await rig.clock.advance(1_000);
    expect(freshness(rig)).toBe('ok');
  });

  it('reaches back to an older order that a callback takes back, though it had ended', async () => {
    const rig = storeRig();
    const { control } = rig.sandbox;
    const createdAtMs = rig.clock.nowMs() - 5 * DAY_MS;
    const order = control.createOrder({ status: 'payment-canceled', createdAtMs }, { hidden: true });
    const daemon = await rig.daemon();
    expect(await rig.announce(daemon, order)).toBe(200);
    await rig.clock.advance(60_000);
    expect(statusOf(rig, order.internalOrderId)).toBe('payment-canceled');
    const paid = control.changeOrder(order.internalOrderId, { status: 'payment-approved' });
    expect(await rig.announce(daemon, paid)).toBe(200);
    await rig.clock.advance(300_000);
    expect(statusOf(rig, order.internalOrderId)).toBe('payment-approved');
    expect(rig.rows('SELECT resolution FROM _held_notifications')).toEqual([{ resolution: 'confirmed' }]);
  });

  it('does not refute a callback that came after it left, and the next one reaches back to that order again', async () => {
    const rig = storeRig();
    const { control } = rig.sandbox;
    const createdAtMs = rig.clock.nowMs() - 5 * DAY_MS;
    const order = control.createOrder({ status: 'payment-canceled', createdAtMs }, { hidden: true });
    const daemon = await rig.daemon(async (request, pass) => {
      const answer = await pass();
      if (isList(request)) await rig.clock.sleep(30_000);
      return answer;
    });
    const change = (status: OrderStatus) => control.changeOrder(order.internalOrderId, { status });
    await rig.announce(daemon, order);
    await rig.clock.advance(60_000);
    await rig.announce(daemon, change('payment-approved'));
    change('payment-canceled');
    const isUnderWay = () => control.calls('order.all').length === 2;
    for (let i = 0; i < 180 && !isUnderWay(); i++) await rig.clock.advance(1_000);
    expect(isUnderWay()).toBe(true);
    await rig.announce(daemon, change('payment-approved'));
    await rig.clock.advance(600_000);
    expect(statusOf(rig, order.internalOrderId)).toBe('payment-approved');
  });

  it('asks once at the first start, whatever the oldest order is that it brings', async () => {
    const rig = storeRig();
    const createdAtMs = rig.clock.nowMs() - 1.6 * DAY_MS;
    rig.sandbox.control.createOrder({ status: 'pending', createdAtMs }, { hidden: true });
    const { queries, tamper } = asked();
    const services = await rig.services(tamper);
    await rig.run(services.orderPoll.poll({ wide: true }));
    expect(statusOf(rig, rig.sandbox.control.orders()[0]?.internalOrderId ?? '')).toBeDefined();
    expect(queries).toHaveLength(1);
  });

  it('reaches back to the oldest open order when it is a wide one', async () => {
    const rig = storeRig();
    const { queries, tamper } = asked();
    const services = await rig.services(tamper);
    const createdAtMs = rig.clock.nowMs() - 20 * DAY_MS;
    rig.sandbox.control.createOrder({ status: 'pending', createdAtMs }, { hidden: true });
    const window = { startDate: '2025-12-20', endDate: '2026-01-16' };
    await rig.run(services.orderPoll.poll({ window }));
    await rig.run(services.orderPoll.poll({ wide: true }));
    expect(String(queries[1]?.get('startDate')) <= '2025-12-26').toBe(true);
    await rig.run(services.orderPoll.poll());
    expect(String(queries[2]?.get('startDate')) >= '2026-01-12').toBe(true);
  });

  it('looks back as far as it is told, though a wide one would reach less far', async () => {
    const rig = storeRig({
      config: (same) => ({ ...same, orders: { ...same.orders, lookbackDays: 40, wideDays: 30 } }),
    });
    const { queries, tamper } = asked();
    const services = await rig.services(tamper);
    await rig.run(services.orderPoll.poll());
    await rig.clock.advance(60_000);
    await rig.run(services.orderPoll.poll());
    expect(queries.every((query) => String(query.get('startDate')) <= '2025-12-06')).toBe(true);
  });

  it('that was stopped is told as nothing', async () => {
    const rig = storeRig();
    const services = await rig.services();
    rig.sandbox.control.setFault({ kind: 'hang', endpoint: 'order.all' });
    const stopping = new AbortController();
    const poll = services.orderPoll.poll({ signal: stopping.signal }).catch((error) => error.code);
    await rig.clock.advance(3_000);
    stopping.abort();
    expect(await rig.run(poll)).toBe('aborted');
    await rig.clock.advance(1_000);
    expect(freshness(rig)).not.toBe('failing');
  });
});

describe('an open order that the list had and has no more', () => {
  async function listing() {
    const rig = storeRig();
    const { control } = rig.sandbox;
    const orders = Array.from({ length: 5 }, () =>
      control.createOrder({ status: 'ready' }, { hidden: true }),
    );
    const ids = orders.map(({ internalOrderId }) => internalOrderId);
    const left = new Set<string>();
    const more: Record<string, unknown> = {};
    const { orderPoll, mirror } = await rig.services(async (request, pass) => {
      const answer = await pass();
      if (!isList(request)) return answer;
      const { data } = JSON.parse(Buffer.from(answer.bytes).toString());
      const docs = data.docs.filter(
        ({ internalOrderId }: { internalOrderId: string }) => !left.has(internalOrderId),
      );
      return json({
        data: {
          docs: [...docs, ...((more.docs as unknown[]) ?? [])],
          hasNextPage: more.hasNextPage ?? false,
        },
      });
    });
    const polled = async () => {
      await rig.run(orderPoll.poll());
      await rig.clock.advance(1_000);
      return alarms(rig).includes('orders.unlisted');
    };
    const [, second] = orders;
    return { rig, ids, left, more, mirror, polled, orders, second: second?.internalOrderId ?? '' };
  }

  it('stays as it is and is reported with the time when it was last listed, until it is listed again', async () => {
    const { rig, left, mirror, polled, second } = await listing();
    await polled();
    await rig.clock.advance(10 * 60_000);
    const lastMs = rig.clock.nowMs();
    expect(await polled()).toBe(false);
    left.add(second);
    expect(await polled()).toBe(true);
    expect(statusOf(rig, second)).toBe('ready');
    const unlisted = mirror.listed.unlisted(second);
    expect(Math.abs(Date.parse(unlisted?.listedAt ?? '') - lastMs)).toBeLessThan(120_000);
    expect(rig.rows('SELECT message FROM alarms')).toMatchObject([
      { message: expect.stringContaining(`last listed ${unlisted?.listedAt.slice(0, 16)}Z`) },
    ]);
    left.clear();
    expect(await polled()).toBe(false);
    left.add(second);
    expect(await polled()).toBe(true);
    rig.sandbox.control.advanceOrder(second, 'dispatched');
    left.clear();
    expect(await polled()).toBe(false);
  });

  it('is not concluded from an answer that is empty, cut, partly unreadable or perhaps limited', async () => {
    const { rig, ids, left, more, polled, second } = await listing();
    await polled();
    left.add(second);
    more.hasNextPage = true;
    expect(await polled()).toBe(false);
    more.hasNextPage = false;
    more.docs = [{ total: 1 }];
    expect(await polled()).toBe(false);
    more.docs = [];
    for (const id of ids) left.add(id);
    expect(await polled()).toBe(false);
    // Most are missing at once: the next answer decides.
    left.clear();
    for (const id of ids.slice(0, 4)) left.add(id);
    expect(await polled()).toBe(false);
    expect(await polled()).toBe(true);
    left.clear();
    expect(await polled()).toBe(false);
    // A limit of ten records leaves out the oldest.
    for (let n = 0; n < 6; n++) rig.sandbox.control.createOrder({ status: 'ready' }, { hidden: true });
    left.add(ids[0] ?? '');
    expect(await polled()).toBe(false);
    left.clear();
    left.add(second);
    expect(await polled()).toBe(true);
  });

  it('is not concluded from 25 records without the oldest', async () => {
    const { rig, ids, left, polled, second } = await listing();
    await polled();
    for (let n = 0; n < 21; n++) rig.sandbox.control.createOrder({ status: 'ready' }, { hidden: true });
    left.add(ids[0] ?? '');
    expect(await polled()).toBe(false);
    left.clear();
    left.add(second);
    expect(await polled()).toBe(true);
  });

  it('is not one that no list ever had, or whose days were not all asked for', async () => {
    const { rig, left, ids, mirror, polled, second } = await listing();
    const daemonless = rig.sandbox.control.createOrder({ status: 'ready' }, { hidden: true });
    left.add(daemonless.internalOrderId);
    await polled();
    expect(await polled()).toBe(false);
    for (const id of ids) left.add(id);
    left.delete(ids[4] ?? '');
    // The day after the next one, the window holds these orders in some time zones only.
    await rig.clock.advance(3 * DAY_MS);
    rig.sandbox.control.createOrder({ status: 'ready' }, { hidden: true });
    expect(await polled()).toBe(false);
    expect(mirror.listed.unlisted(second)).toBeUndefined();
  });
});

describe('an open order older than a wide poll reaches', () => {
  it('is heard of by its own day, and what was deleted of that day stays away', async () => {
    const rig = storeRig();
    const { control } = rig.sandbox;
    const createdAtMs = rig.clock.nowMs() - 200 * DAY_MS;
    const preOrder = control.createOrder({ status: 'payment-approved', createdAtMs }, { hidden: true });
    const { queries, tamper } = asked();
    const daemon = await rig.daemon(tamper);
    expect(await rig.announce(daemon, preOrder)).toBe(200);
    // An order of the same day that ended long ago, and that this mirror does not have any more.
    const gone = control.createOrder({ status: 'dispatched', createdAtMs }, { hidden: true });
    control.advanceOrder(preOrder.internalOrderId, 'cancel');
    await rig.clock.advance(65 * 60_000);
    expect(statusOf(rig, preOrder.internalOrderId)).toBe('cancel');
    expect(statusOf(rig, gone.internalOrderId)).toBeUndefined();
    const spans = queries.map((query) =>
      Math.round(
        (Date.parse(query.get('endDate') ?? '') - Date.parse(query.get('startDate') ?? '')) / DAY_MS,
      ),
    );
    expect(Math.max(...spans)).toBeLessThanOrEqual(34);
    expect(rig.sandbox.control.violations()).toEqual([]);
  });
});

describe('the daemon', () => {
  /** Opens a store that polls every two minutes, the interval in the document. */
  const asDocumented = () =>
    storeRig({
      config: (same) => ({
        ...same,
        orders: { ...same.orders, poll: '*/2 * * * *' },
        limits: { ...same.limits, endpointIntervalMs: 1_000, ordersIntervalMs: 110_000 },
      }),
    });

  it('tells that orders are stale only after ten minutes without a poll, and no longer once one came', async () => {
    const rig = asDocumented();
    const { services } = await rig.daemon();
    const isStale = () => areOrdersStale(services.mirror, { config: services.config, clock: rig.clock });
    await rig.clock.advance(20 * 60_000);
    const once = rig.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'order.all' });
    await rig.clock.advance(3 * 60_000);
    expect(isStale()).toBe(false);
    await rig.clock.advance(12 * 60_000);
    expect(isStale()).toBe(true);
    rig.sandbox.control.clearFaults(once);
    await rig.clock.advance(5 * 60_000);
    expect(isStale()).toBe(false);
  });

  it('goes on asking at each due moment through an outage', async () => {
    const rig = asDocumented();
    await rig.daemon();
    rig.sandbox.control.setFault({ kind: 'status', status: 500, endpoint: 'order.all' });
    await rig.clock.advance(30 * 60_000);
    expect(rig.sandbox.control.calls('order.all').length).toBeGreaterThanOrEqual(14);
    expect(rig.sandbox.control.violations()).toEqual([]);
  });

  it('gives its signs of life while the platform lets it wait for hours', async () => {
    const rig = asDocumented();
    const daemon = await rig.daemon();
    await rig.clock.advance(60_000);
    daemon.services.state.ledger.holdBack('order.all', 3 * 3_600_000);
    for (let i = 0; i < 6; i++) {
      await rig.clock.advance(10 * 60_000);
      expect(daemon.stalledLoops()).toEqual([]);
    }
  });
});
