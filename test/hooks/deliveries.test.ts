/** Tests src/hooks/deliveries.ts, and that src/hooks/hook-loop.ts sends events again if the cursor is moved back. */

import { expect, it, onTestFinished } from 'vitest';
import { DELIVERIES_KEPT, deliveriesOf, noteTries } from '../../src/hooks/deliveries.ts';
import { HookCursors, resendingFrom, rewind, statusOf } from '../../src/hooks/hook-cursors.ts';
import type { HookAnswer } from '../../src/hooks/receivers.ts';
import { observation, openTestMirror, sampleNotification } from '../orders/open-test-mirror.ts';
import { hook } from './event-receiver.ts';
import { loneHookLoop } from './lone-hook-loop.ts';

const AT = '2026-01-15T12:00:00.000Z';
const PRINTER = hook('printer', { url: 'http://printer.test', from: 'start' });
const PRINTER_ORDERS = { name: 'printer', event: 'order' } as const;

/** Runs a hook on a mirror with three orders. A test sets what the receiver answers by replacing `receiver.answer`. */
async function printing() {
  const { mirror, clock } = openTestMirror();
  const seen = [1, 2, 3].map((number) => observation('webhook', sampleNotification(number)));
  await mirror.save(seen.map((each) => ({ kind: 'order', observation: each })));
  const sent: number[] = [];
  const receiver = {
    answer: (_seq: number): HookAnswer => ({ ok: true, what: 'printer.test answered 200', text: '' }),
    /** Called while an event is being sent. */
    onSend: async (_seq: number): Promise<void> => {},
  };
  const stop = new AbortController();
  const loop = {
    hooks: [PRINTER],
    receiverOf: () => ({
      async send({ seq }: { seq: number }) {
        await receiver.onSend(seq);
        const answer = receiver.answer(seq);
        if (answer.ok) sent.push(seq);
        return answer;
      },
      close() {},
    }),
  };
  const ended = loneHookLoop({ mirror, clock }, loop, stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await clock.advance(1_000);
    await ended;
  });
  const run = async (seconds: number) => {
    for (let each = 0; each < seconds; each++) await clock.advance(1_000);
  };
  const send = (from: number) =>
    mirror.write((db) => rewind(db, PRINTER_ORDERS, { from, at: new Date(clock.nowMs()).toISOString() }));
  const deliveries = (failed = false) =>
    mirror.read((db) => deliveriesOf(db, 'printer', { failed, limit: 100 }));
  const status = () => mirror.read((db) => statusOf(db, PRINTER, 'order'));
  return { mirror, clock, receiver, sent, run, send, deliveries, status };
}

it('each event is noted once with its tries and the last answer, the newest first', async () => {
  const { receiver, run, deliveries } = await printing();
  let failures = 2;
  receiver.answer = (seq) =>
    seq === 2 && failures-- > 0
      ? { ok: false, what: 'printer.test answered 500', text: 'no paper' }
      : { ok: true, what: 'printer.test answered 200', text: 'thanks' };
  await run(20);
  expect(deliveries()).toMatchObject([
    { seq: 3, tries: 1, taken: true, answer: 'printer.test answered 200' },
    { seq: 2, tries: 3, taken: true, answer: 'printer.test answered 200', status: 'pending' },
    { seq: 1, tries: 1, taken: true, hook: 'printer' },
  ]);
  expect(deliveries(true).map(({ seq }) => seq)).toEqual([2]);
  expect(deliveries()[0]?.orderId).toEqual(expect.any(String));
});

it('an event that is not taken yet says what its receiver answered', async () => {
  const { receiver, run, deliveries } = await printing();
  receiver.answer = () => ({ ok: false, what: 'printer.test answered 500', text: 'no paper' });
  await run(3);
  expect(deliveries(true)).toMatchObject([
    { seq: 1, taken: false, answer: 'printer.test answered 500: no paper' },
  ]);
});

it('of each hook the newest deliveries are kept, and those of a hook that is gone are deleted', async () => {
  const { mirror } = openTestMirror();
  const tries = Array.from({ length: DELIVERIES_KEPT + 20 }, (_, i) => ({
    seq: i + 1,
    at: AT,
    taken: true,
    answer: '',
    changeId: null,
  }));
  const cursors = new HookCursors(mirror);
  for (const name of ['one', 'two']) {
    const key = { name, event: 'order' } as const;
    await cursors.begin({ ...key, begun: undefined, from: 'start', at: AT, seq: 0 });
    await mirror.write((db) => noteTries(db, key, tries.slice(0, 300)));
    await mirror.write((db) => noteTries(db, key, tries.slice(300)));
  }
  const seqs = (name: string) =>
    mirror.read((db) => deliveriesOf(db, name, { failed: false, limit: 9_999 })).map(({ seq }) => seq);
  for (const name of ['one', 'two']) {
    expect([seqs(name).length, seqs(name)[0], seqs(name).at(-1)]).toEqual([DELIVERIES_KEPT, 520, 21]);
  }
  await cursors.keepOnly([{ name: 'two', event: 'order' }]);
  expect([seqs('one').length, seqs('two').length]).toEqual([0, DELIVERIES_KEPT]);
});

it('a hook that is sent back gets the events again in order, then what is new', async () => {
  const { mirror, run, send, sent, deliveries, status } = await printing();
  await run(3);
  expect(sent).toEqual([1, 2, 3]);
  expect(mirror.read((db) => resendingFrom(db, PRINTER, 'order', 2))).toEqual({
    seq: 3,
    events: 2,
    first: 2,
  });
  await send(2);
  await mirror.save([{ kind: 'order', observation: observation('webhook', sampleNotification(4)) }]);
  expect(status()).toMatchObject({ seq: 1, waiting: 3 });
  await run(5);
  expect(sent).toEqual([1, 2, 3, 2, 3, 4]);
  expect(deliveries().map(({ seq }) => seq)).toEqual([4, 3, 2, 3, 2, 1]);
  expect(status()).toMatchObject({ seq: 4, waiting: 0 });
  const ahead = () => mirror.read((db) => resendingFrom(db, PRINTER, 'order', 5));
  expect(ahead).toThrow('printer is at 4, so that event was not sent yet.');
});

it('a hook that is sent back in the middle of a page, or while an event is under way, misses none', async () => {
  const { run, send, sent, receiver } = await printing();
  const sentBack = new Set<number>();
  receiver.onSend = async (seq) => {
    if (seq === 1 || sentBack.has(seq)) return;
    sentBack.add(seq);
    await send(1);
  };
  await run(10);
  expect(sent).toEqual([1, 2, 1, 2, 3, 1, 2, 3]);
});

it('a hook that is sent back while it rests after a failure starts with the earlier events', async () => {
  const { run, send, sent, receiver, status } = await printing();
  receiver.answer = (seq) => ({ ok: seq !== 3, what: 'printer.test answered', text: '' });
  await run(300);
  expect(status().failures).toBeGreaterThan(3);
  receiver.answer = () => ({ ok: true, what: '', text: '' });
  await send(1);
  expect(status()).toMatchObject({ failures: 0, nextTryAt: null });
  // Events that are sent again wait from when the cursor was moved back, not from when they were received.
  expect(status().waitsSince).not.toBe(AT);
  await run(5);
  expect(sent).toEqual([1, 2, 1, 2, 3]);
});
