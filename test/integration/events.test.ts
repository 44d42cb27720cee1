import { afterEach, expect, it } from 'vitest';
import { openWorkplace, until, type Workplace } from '../support/workplace.ts';

let place: Workplace;
afterEach(() => place.close());

const ORDERS = 60;
const MEANWHILE = 20;

it('what was received is read again beside the daemon while callbacks come: one event for each that changes', async () => {
  place = await openWorkplace(31);
  const { control } = place.sandbox;
  control.setFault({ kind: 'status', endpoint: 'order.all' });
  const first = await place.run();
  await until('the webhook is registered', () => control.webhook()?.active === true);
  for (let i = 0; i < ORDERS; i++) control.advanceOrder(control.createOrder().internalOrderId);
  await control.settled();
  await until('all are mirrored', () => place.mirrorRows().length === ORDERS);
  await first.end('SIGTERM');

  place.env.TILLSYNC_ORDERS_FIELDS = '{"name":["websiteId"]}';
  const daemon = await place.run();
  const feed = async (after: number) => {
    const answer = await fetch(`${daemon.localUrl}/v1/orders?limit=500&after=${after}`);
    return (await answer.json()) as { events: { orderId: string; seq: number }[]; newest: number };
  };
  const { newest } = await feed(0);
  const json = async (...words: string[]) => {
    const { code, stdout } = await place.command('order', 'replay', ...words, '--json');
    return { code, ...JSON.parse(stdout) };
  };
  expect(await json('--all', '--dry-run')).toMatchObject({ code: 0, orders: ORDERS, changed: ORDERS });
  expect((await feed(newest)).events).toEqual([]);

  const old = new Set(place.mirrorRows().map(({ order_id }) => order_id));
  const replaying = json('--all');
  for (let i = 0; i < MEANWHILE; i++) {
    control.createOrder();
    await control.settled();
  }
  expect(await replaying).toMatchObject({ code: 0, changed: ORDERS, isComplete: true });
  expect(place.mirrorRows()).toHaveLength(ORDERS + MEANWHILE);
  const { events } = await feed(newest);
  expect(events).toHaveLength(ORDERS + MEANWHILE);
  expect(new Set(events.map(({ orderId }) => orderId)).size).toBe(ORDERS + MEANWHILE);
  expect(events.filter(({ orderId }) => old.has(orderId))).toHaveLength(ORDERS);
  const after = (await feed(newest)).newest;
  expect(await json('--all')).toMatchObject({ code: 0, changed: 0, unchanged: ORDERS + MEANWHILE });
  expect((await feed(after)).events).toEqual([]);
  expect(await daemon.end('SIGTERM')).toBe(0);
});
