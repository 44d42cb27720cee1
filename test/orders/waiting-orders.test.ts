import { expect, it } from 'vitest';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import { readBoard, waitingOrders } from '../../src/orders/reading/order-queries.ts';
import { takeOn } from '../support/take-on-role.ts';
import { OBSERVED_MS, observation, openTestMirror, sampleNotification } from './open-test-mirror.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const at = (ms: number) => new Date(OBSERVED_MS + ms).toISOString();

/** Merges a callback that arrives `ms` after `OBSERVED_MS`. */
async function hear(
  mirror: Mirror,
  number: number,
  ms: number,
  fields: Record<string, unknown>,
): Promise<void> {
  const sent = sampleNotification(number, { createdAt: at(ms), ...fields });
  const order = observation('webhook', sent, { observedAtMs: OBSERVED_MS + ms });
  await mirror.save([{ kind: 'order', observation: order }]);
}

function acknowledge(
  mirror: Mirror,
  number: number,
  ms: number,
  { source = 'http', branch = '' } = {},
): Promise<unknown> {
  const orderId = sampleNotification(number).internalOrderId;
  return mirror.write((db) =>
    db
      .prepare('INSERT INTO _order_acks (order_id, branch, acked_at, source) VALUES (?, ?, ?, ?)')
      .run(orderId, branch, at(ms), source),
  );
}

const waiting = (mirror: Mirror, ms: number) =>
  mirror
    .read((db) => waitingOrders(db, OBSERVED_MS + ms, 100))
    .map(({ code, since }) => `${code} ${(Date.parse(since) - OBSERVED_MS) / MINUTE_MS}`);

it('waits from when an order was first paid, until it is acknowledged or over', async () => {
  const { mirror } = openTestMirror();
  await hear(mirror, 1, 0, { status: 'inProcess' });
  await hear(mirror, 2, 0, { status: 'payment-pending' });
  await hear(mirror, 3, MINUTE_MS, { status: 'payment-approved' });
  await hear(mirror, 4, 2 * MINUTE_MS, { status: 'picker-pending' });
  await acknowledge(mirror, 4, 3 * MINUTE_MS);
  await hear(mirror, 2, 5 * MINUTE_MS, { status: 'payment-approved' });
  await hear(mirror, 3, 6 * MINUTE_MS, { status: 'inProcess' });
  expect(waiting(mirror, 7 * MINUTE_MS)).toEqual(['1 0', '3 1', '2 5']);
  await hear(mirror, 1, 8 * MINUTE_MS, { status: 'dispatched' });
  await hear(mirror, 3, 8 * MINUTE_MS, { status: 'cancel' });
  expect(waiting(mirror, 9 * MINUTE_MS)).toEqual(['2 5']);
  await acknowledge(mirror, 2, 9 * MINUTE_MS);
  expect(waiting(mirror, 9 * MINUTE_MS)).toEqual([]);
});

it('waits also where the first acknowledgement of the store came before its order', async () => {
  const { mirror } = openTestMirror();
  await acknowledge(mirror, 1, 0);
  await hear(mirror, 2, MINUTE_MS, { status: 'inProcess' });
  expect(waiting(mirror, 2 * MINUTE_MS)).toEqual([]);
  await hear(mirror, 1, 2 * MINUTE_MS, { status: 'inProcess' });
  expect(waiting(mirror, 3 * MINUTE_MS)).toEqual(['2 1']);
});

it('an acknowledgement that a person typed makes no store one that acknowledges', async () => {
  const { mirror } = openTestMirror();
  await acknowledge(mirror, 1, 0, { source: 'cli' });
  for (const number of [1, 2, 3]) await hear(mirror, number, MINUTE_MS, { status: 'inProcess' });
  await acknowledge(mirror, 2, 2 * MINUTE_MS, { source: 'cli' });
  expect(waiting(mirror, 3 * MINUTE_MS)).toEqual([]);
  await acknowledge(mirror, 3, 4 * MINUTE_MS);
  expect(waiting(mirror, 5 * MINUTE_MS)).toEqual([]);
});

it.each([
  ['of a single tillsync', []],
  ['of a hub that was a branch', ['branch', 'hub'] as const],
])('waits, in the mirror %s, for the POS of the store to which an order moves', async (_name, roles) => {
  const { mirror } = openTestMirror();
  for (const role of roles) await mirror.write((db) => takeOn(db, role));
  const inStore = (externalId: string, status = 'inProcess') => ({ status, store: { externalId } });
  await hear(mirror, 1, 0, inStore('B2'));
  await acknowledge(mirror, 1, 0, { branch: 'B2' });
  await hear(mirror, 2, 0, inStore('B1'));
  await acknowledge(mirror, 2, MINUTE_MS, { branch: 'B1' });
  expect(waiting(mirror, 29 * MINUTE_MS)).toEqual([]);
  await hear(mirror, 2, 30 * MINUTE_MS, inStore('B2'));
  await hear(mirror, 2, 32 * MINUTE_MS, inStore('B2', 'ready'));
  expect(waiting(mirror, 40 * MINUTE_MS)).toEqual(['2 30']);
  await acknowledge(mirror, 2, 41 * MINUTE_MS, { branch: 'B2' });
  expect(waiting(mirror, 42 * MINUTE_MS)).toEqual([]);
});

it("a branch of a hub takes each acknowledgement for its own POS's, whatever its store was called", async () => {
  const { mirror } = openTestMirror();
  await mirror.write((db) => takeOn(db, 'branch'));
  await hear(mirror, 1, 0, { status: 'inProcess', store: { externalId: 'Norte' } });
  await acknowledge(mirror, 1, 0, { branch: 'Norte' });
  await hear(mirror, 2, 0, { status: 'inProcess', store: { externalId: 'B1' } });
  await acknowledge(mirror, 2, MINUTE_MS, { branch: 'B1' });
  await hear(mirror, 2, 30 * MINUTE_MS, { status: 'ready', store: { externalId: 'Norte' } });
  expect(waiting(mirror, 40 * MINUTE_MS)).toEqual([]);
});

it('says nothing where nobody acknowledges, of what was there before, and of what is a week old', async () => {
  const { mirror } = openTestMirror();
  await hear(mirror, 1, 0, { status: 'inProcess' });
  await hear(mirror, 2, 5 * HOUR_MS, { status: 'inProcess' });
  expect(waiting(mirror, 6 * HOUR_MS)).toEqual([]);
  await hear(mirror, 3, 5 * HOUR_MS, { status: 'inProcess' });
  await acknowledge(mirror, 3, 5.5 * HOUR_MS);
  // The first order arrived long before the POS began to acknowledge, so it does not wait.
  expect(waiting(mirror, 6 * HOUR_MS)).toEqual(['2 300']);
  expect(waiting(mirror, 6 * DAY_MS)).toEqual(['2 300']);
  expect(waiting(mirror, 8 * DAY_MS)).toEqual([]);
  await hear(mirror, 4, 20 * DAY_MS, { status: 'inProcess' });
  expect(waiting(mirror, 21 * DAY_MS)).toHaveLength(1);
  await hear(mirror, 5, 40 * DAY_MS, { status: 'inProcess' });
  expect(waiting(mirror, 41 * DAY_MS)).toEqual([]);
});

it('says nothing of what was created long ago and is heard of now, but for what is due', async () => {
  const { mirror } = openTestMirror();
  const old = { status: 'inProcess', createdAt: at(-20 * DAY_MS) };
  await hear(mirror, 1, 0, { status: 'inProcess' });
  await acknowledge(mirror, 1, 0);
  await hear(mirror, 2, MINUTE_MS, old);
  await hear(mirror, 3, MINUTE_MS, { ...old, isScheduled: true, scheduledFor: at(30 * MINUTE_MS) });
  await hear(mirror, 4, MINUTE_MS, { ...old, isScheduled: true, scheduledFor: at(-20 * DAY_MS) });
  await hear(mirror, 5, MINUTE_MS, { ...old, createdAt: 'hace un rato' });
  await hear(mirror, 6, MINUTE_MS, { ...old, createdAt: null });
  expect(waiting(mirror, 2 * MINUTE_MS)).toEqual(['3 1', '5 1', '6 1']);
});

it('lets a scheduled order wait from an hour before it is due', async () => {
  const { mirror } = openTestMirror();
  await hear(mirror, 1, 0, { status: 'inProcess' });
  await acknowledge(mirror, 1, 0);
  const due = { status: 'payment-approved', isScheduled: true };
  await hear(mirror, 2, 0, { ...due, scheduledFor: at(20 * DAY_MS) });
  await hear(mirror, 3, 0, { ...due, scheduledFor: at(30 * MINUTE_MS) });
  await hear(mirror, 4, 0, { ...due, scheduledFor: 'el lunes' });
  expect(waiting(mirror, MINUTE_MS)).toEqual(['3 0', '4 0']);
  await acknowledge(mirror, 3, 0);
  await acknowledge(mirror, 4, 0);
  expect(waiting(mirror, 20 * DAY_MS - 61 * MINUTE_MS)).toEqual([]);
  expect(waiting(mirror, 20 * DAY_MS)).toEqual([`2 ${20 * 24 * 60 - 60}`]);
});

it('puts what waits on the board, however many newer orders there are', async () => {
  const { mirror } = openTestMirror();
  const created = (minute: number) => ({ status: 'inProcess', createdAt: at(minute * MINUTE_MS) });
  await hear(mirror, 1, 0, created(0));
  for (const number of [2, 3, 4]) {
    await hear(mirror, number, number * MINUTE_MS, created(number));
    await acknowledge(mirror, number, number * MINUTE_MS);
  }
  const board = mirror.read((db) => readBoard(db, { open: 2, ended: 2 }, OBSERVED_MS + HOUR_MS));
  expect(board.map(({ code, waitingSince }) => [code, waitingSince])).toEqual([
    [4, null],
    [3, null],
    [1, at(0)],
  ]);
});
