import { expect, it } from 'vitest';
import type { Log } from '../../src/core/log.ts';
import { COUNTED_MAX } from '../../src/hooks/hook.ts';
import { eventsFrom, HookCursors, statusOf } from '../../src/hooks/hook-cursors.ts';
import type { HookAnswer } from '../../src/hooks/receivers.ts';
import { observation, openTestMirror, sampleNotification } from '../orders/open-test-mirror.ts';
import { hook } from './event-receiver.ts';
import { loneHookLoop } from './lone-hook-loop.ts';

const AT = '2026-01-15T12:00:00.000Z';

it('a hook that began before its mirror was made anew misses no event of the moment in which it began', async () => {
  const { mirror } = openTestMirror();
  const insert = `INSERT INTO order_events (order_id, status, source, observed_at) VALUES ('o1', 'pending', 'poll', ?)`;
  const times = ['2026-01-15T11:59:59.999Z', AT, '2026-01-15T12:00:00.001Z'];
  await mirror.write((db) => {
    for (const time of times) db.prepare(insert).run(time);
  });
  const seqs = mirror.read((db) => db.prepare('SELECT seq FROM order_events ORDER BY seq').pluck().all());
  const beginning = {
    name: 'pos',
    event: 'order',
    begun: { newsFrom: AT },
    from: 'now',
    at: AT,
    seq: 99,
  } as const;
  expect(await new HookCursors(mirror).begin(beginning)).toMatchObject({ seq: seqs[0], newsFrom: AT });
});

it('a hook counts up to ten thousand waiting events, and says where more wait', async () => {
  const { mirror } = openTestMirror();
  const fill = (count: number) =>
    mirror.write((db) =>
      db
        .prepare(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
          INSERT INTO order_events (order_id, status, source, observed_at) SELECT 'o1', 'ready', 'webhook', ? FROM n`)
        .run(count, AT),
    );
  await new HookCursors(mirror).begin({
    name: 'pos',
    event: 'order',
    begun: undefined,
    from: 'start',
    at: AT,
    seq: 0,
  });
  const status = () => mirror.read((db) => statusOf(db, hook('pos'), 'order'));
  await fill(COUNTED_MAX);
  expect(status()).toMatchObject({ waiting: 10_000, isMore: false });
  await fill(1);
  expect(status()).toMatchObject({ waiting: 10_000, isMore: true });
});

it('a hook that takes events again says so once in the log', async () => {
  const { mirror, clock } = openTestMirror();
  const seen = [1, 2].map((number) => observation('webhook', sampleNotification(number)));
  await mirror.save(seen.map((each) => ({ kind: 'order', observation: each })));
  const told: [number, string][] = [];
  const note = (fields: object, message: string) =>
    void told.push([(fields as { event: number }).event, message]);
  const log: Log = { debug: note, info: note, warn: note, error: note };
  const answers: HookAnswer[] = [{ ok: false, what: 'printer answered 500', text: '' }];
  let taken = 0;
  const stop = new AbortController();
  const ended = loneHookLoop(
    { mirror, clock },
    {
      hooks: [hook('printer', { url: 'http://printer.test', from: 'start' })],
      receiverOf: () => ({
        async send() {
          const answer = answers.shift() ?? { ok: true, what: '', text: '' };
          if (answer.ok) taken += 1;
          return answer;
        },
        close() {},
      }),
      log,
    },
    stop.signal,
  );
  for (let seconds = 0; taken < 2 && seconds < 60; seconds++) await clock.advance(1_000);
  stop.abort();
  await clock.advance(1_000);
  await ended;
  expect(taken).toBe(2);
  const [first = 0] = mirror
    .read((db) => eventsFrom(db, { name: 'printer', event: 'order' }, 0, 1))
    .map(({ seq }) => seq);
  expect(told).toEqual([
    [first, 'a hook did not take an event'],
    [first, 'a hook takes events again'],
  ]);
});
