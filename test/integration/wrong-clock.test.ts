import { describe, expect, it } from 'vitest';
import { type StoreRig, storeRig } from '../support/store-rig.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Time for two polls and two checks of the clock. */
const A_WHILE_MS = 660_000;

const openStore = () =>
  storeRig({ config: (config) => ({ ...config, orders: { ...config.orders, poll: '0 */5 * * * *' } }) });

/** Makes this machine's clock jump; the platform's continues. */
function jump(store: StoreRig, ms: number): void {
  store.clock.jumpWall(ms);
  store.sandbox.control.configure({ clockSkewMs: store.sandbox.control.settings().clockSkewMs - ms });
}

const mirrored = (store: StoreRig) =>
  store.rows<{ id: string }>('SELECT order_id AS id FROM orders ORDER BY id').map(({ id }) => id);
const placed = (store: StoreRig) =>
  store.sandbox.control
    .orders()
    .map(({ internalOrderId }) => internalOrderId)
    .sort();
const alarms = (store: StoreRig) =>
  store.rows<{ key: string }>("SELECT key FROM alarms WHERE key LIKE 'clock%'").map(({ key }) => key);

const WRONG = [
  { by: '5 days ahead', jumpMs: 5 * DAY_MS, told: ['clock.wrong'] },
  { by: '400 days behind', jumpMs: -400 * DAY_MS, told: ['clock.wrong'] },
  { by: '2 hours ahead', jumpMs: 2 * HOUR_MS, told: ['clock.off'] },
  { by: '3 seconds ahead', jumpMs: 3_000, told: [] },
];

describe("this machine's clock, when it is", () => {
  it.each(WRONG)('$by from one moment to the next, hides no order, and is told', async ({ jumpMs, told }) => {
    const store = openStore();
    const order = () => store.sandbox.control.createOrder({}, { hidden: true });
    order();
    await store.daemon();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
    jump(store, jumpMs);
    order();
    await store.clock.advance(A_WHILE_MS);
    order();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
    expect(alarms(store)).toEqual(told);
    jump(store, -jumpMs);
    order();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
    expect(alarms(store)).toEqual([]);
    expect(store.sandbox.control.violations()).toEqual([]);
  });

  it.each(WRONG)('$by at the start, hides no order, and is told', async ({ jumpMs, told }) => {
    const store = openStore();
    const order = () => store.sandbox.control.createOrder({}, { hidden: true });
    const first = await store.daemon();
    await store.clock.advance(A_WHILE_MS);
    await store.run(first.stop());
    jump(store, jumpMs);
    order();
    await store.clock.advance(6 * HOUR_MS);
    order();
    const second = await store.daemon();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
    expect(alarms(store)).toEqual(told);
    await store.run(second.stop());
    // The next two orders are on days that no poll asked for: one while tillsync is off, one after the clock is
    // corrected.
    order();
    await store.clock.advance(4 * DAY_MS);
    jump(store, -jumpMs);
    order();
    await store.daemon();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
    expect(alarms(store)).toEqual([]);
    expect(store.sandbox.control.violations()).toEqual([]);
  });

  it('wrong at the very first start, asks again for the right days', async () => {
    const store = openStore();
    jump(store, 5 * DAY_MS);
    store.sandbox.control.createOrder({}, { hidden: true });
    await store.daemon();
    await store.clock.advance(A_WHILE_MS);
    expect(mirrored(store)).toEqual(placed(store));
  });

  it('a stored moment to come is taken for no moment: the poll reaches back as far as it may', async () => {
    const store = openStore();
    store.sandbox.control.createOrder({}, { hidden: true });
    await store.clock.advance(20 * DAY_MS);
    const services = await store.services();
    services.mirror.health.ok('orders.poll');
    await services.mirror.health.flush();
    await services.mirror.polls.note(store.clock.nowMs() + 100 * DAY_MS, false);
    await store.run(services.orderPoll.poll());
    expect(mirrored(store)).toEqual(placed(store));
  });
});
