/** Tests src/support/doctor/platform.ts and src/support/doctor/check.ts. */

import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import Database from 'better-sqlite3';
import { describe, expect, test } from 'vitest';
import type { Freshness } from '../../src/core/alarm.ts';
import { TillsyncError } from '../../src/core/errors.ts';
import type { Mirror } from '../../src/orders/reading/mirror.ts';
import type { Wait } from '../../src/platform/platform.ts';
import { NO_WEBHOOK_MEMORY } from '../../src/platform/webhook-registration.ts';
import { well } from '../../src/support/doctor/check.ts';
import { networkOutcome } from '../../src/support/doctor/machine.ts';
import {
  addressOutcome,
  arrivingOutcome,
  attempts,
  clockOutcome,
  firstSights,
  limitsOutcome,
  registeredOutcome,
} from '../../src/support/doctor/platform.ts';
import { FakeClock } from '../support/fake-clock.ts';

const WANTED = 'https://shop.example/webhook';
const NOW = Date.UTC(2026, 0, 15, 12);
const at = (agoS: number) => new Date(NOW - agoS * 1000).toISOString();

describe('the webhook', () => {
  const there = { callbackUrl: WANTED, active: true, hasSecret: true };

  test.each([
    [there, 'ok', 'sends callbacks to https://shop.example/webhook'],
    [{ ...there, active: null, hasSecret: null }, 'ok', 'sends callbacks'],
    [null, 'warn', 'It has none'],
    [{ ...there, callbackUrl: 'https://old.example/x' }, 'warn', 'sends to https://old.example/x, not to'],
    [{ ...there, active: false }, 'warn', 'switched off there'],
    [{ ...there, hasSecret: false }, 'warn', 'no secret'],
    ['unsupported', 'warn', 'never registered'],
  ] as const)('%o is %s', (seen, level, message) => {
    expect(registeredOutcome(WANTED, seen, NO_WEBHOOK_MEMORY)).toMatchObject({
      level,
      message: expect.stringContaining(message),
    });
  });

  test('that cannot be read counts as it was last registered; with no address there is nothing to compare', () => {
    const registered = { callbackUrl: WANTED, secretDigest: null };
    const memory = { ...NO_WEBHOOK_MEMORY, registered };
    expect(registeredOutcome(WANTED, 'unsupported', memory).level).toBe('ok');
    expect(registeredOutcome('', there, NO_WEBHOOK_MEMORY).level).toBe('skipped');
  });

  test.each([
    [{ isOff: true }, { ...there, active: false }, 'skipped', 'Callbacks are off, as you chose'],
    [{ isOff: true }, null, 'skipped', 'Callbacks are off, as you chose'],
    [{ isOff: true }, 'unsupported', 'skipped', 'Callbacks are off, as you chose'],
    [{ isOff: true }, there, 'warn', 'were switched off here, and the platform sends them'],
    [{ isWithoutSecret: true }, { ...there, hasSecret: false }, 'warn', 'need no secret, as you chose'],
    [{ isWithoutSecret: true }, there, 'warn', 'still has a secret'],
  ] as const)('that a person chose (%o) with %o there is %s', (chosen, seen, level, message) => {
    expect(registeredOutcome(WANTED, seen, { ...NO_WEBHOOK_MEMORY, ...chosen })).toMatchObject({
      level,
      message: expect.stringContaining(message),
    });
  });

  test('is reached or not: a public address that fails leaves polling, a receiver that fails is a fault', () => {
    const result = { url: WANTED, ok: false, message: 'not reached (ECONNREFUSED)' };
    expect(addressOutcome([{ ...result, what: 'public' }]).level).toBe('warn');
    expect(addressOutcome([{ ...result, what: 'local' }]).level).toBe('fail');
    expect(addressOutcome([{ ...result, what: 'local', ok: true }]).level).toBe('ok');
  });
});

describe('callbacks', () => {
  function mirrorOf(events: readonly [source: 'webhook' | 'poll', agoS: number, createdAgoS: number][]) {
    const db = new Database(':memory:');
    db.exec(`CREATE TABLE _orders (order_id TEXT PRIMARY KEY, created_at TEXT);
      CREATE TABLE order_events (seq INTEGER PRIMARY KEY, order_id TEXT, status TEXT, previous_status TEXT,
        source TEXT, observed_at TEXT)`);
    for (const [i, [source, agoS, createdAgoS]] of events.entries()) {
      db.prepare('INSERT INTO _orders VALUES (?, ?)').run(`o${i}`, at(createdAgoS));
      db.prepare('INSERT INTO order_events VALUES (?, ?, ?, NULL, ?, ?)').run(
        i + 1,
        `o${i}`,
        'new',
        source,
        at(agoS),
      );
    }
    return db;
  }
  const judged = (db: Database.Database, lastOkAt: string | null = null) => {
    const webhook = { subject: 'orders.webhook', lastOkAt } as Freshness;
    const mirror = {
      read: (use: (db: Database.Database) => unknown) => use(db),
      health: { freshness: () => [webhook] },
    };
    const sights = firstSights(mirror as unknown as Mirror, NOW);
    return arrivingOutcome({ level: 'green', findings: [] }, sights, new FakeClock(NOW));
  };

  test('that announced the orders are well, however many an earlier stop left to a poll', () => {
    const old = Array.from({ length: 30 }, () => ['poll', 7200, 90_000] as const);
    const db = mirrorOf([...old.map((each) => [...each] as ['poll', number, number]), ['webhook', 60, 61]]);
    expect(judged(db)).toMatchObject({
      level: 'ok',
      message:
        'The last came 1m ago; of the new orders of the last day callbacks announced 1, and polls found 30 first.',
    });
  });

  test('that stopped are noticed by the fresh orders that only polls brought since', () => {
    const db = mirrorOf([
      ['webhook', 4000, 4001],
      ['poll', 300, 360],
      ['poll', 200, 260],
      ['poll', 100, 160],
    ]);
    expect(judged(db)).toMatchObject({ level: 'warn', facts: { unannounced: 3, lastWebhookAt: at(4000) } });
    // A callback for an order that a poll had found makes no event, but still shows that callbacks arrive.
    expect(judged(db, at(50))).toMatchObject({ level: 'ok', facts: { unannounced: 0 } });
  });

  test('are not judged before there was an order', () => {
    expect(judged(mirrorOf([]))).toMatchObject({ level: 'skipped' });
  });
});

test.each([
  [null, 'skipped', 'no time'],
  [{ skewMs: 2_000, source: 'answer' }, 'ok', 'agrees'],
  [{ skewMs: 120_000, source: 'answer' }, 'warn', "is 2m behind the platform's"],
  [
    { skewMs: -120_000, source: 'refresh' },
    'warn',
    "is 2m ahead of the platform's, as of the last token refresh",
  ],
  [{ skewMs: 7_200_000, source: 'answer' }, 'fail', '2h behind'],
] as const)('a clock read as %o is %s', (reading, level, message) => {
  expect(clockOutcome(reading)).toMatchObject({ level, message: expect.stringContaining(message) });
});

describe('a call', () => {
  const rig = (hopeless?: string) => {
    const waits: Wait[] = [];
    const signal = new AbortController().signal;
    return {
      waits,
      attempt: attempts({ signal, onWait: (wait) => waits.push(wait), hopeless: () => hopeless }),
    };
  };
  const wait = (waitMs: number): Wait => ({ endpoint: 'product.list', reason: 'window', waitMs });

  test('waits for its turn and says so, but not for long', async () => {
    const { waits, attempt } = rig();
    const short = await attempt(async (how) => {
      how.onWait?.(wait(900));
      return well('answered');
    });
    expect({ short: short.level, waits: waits.length }).toEqual({ short: 'ok', waits: 1 });
    const long = await attempt(async ({ onWait, signal }) => {
      onWait?.(wait(200_000));
      if (signal?.aborted) throw new TillsyncError('aborted', 'stopped');
      return well('answered');
    });
    expect(long).toMatchObject({ level: 'skipped', message: expect.stringContaining('3m 20s') });
  });

  test('is not made where it cannot work, and a fault of it is told with what to do', async () => {
    const { attempt } = rig('Not tried: --offline.');
    expect(await attempt(() => Promise.reject(new Error('called')))).toMatchObject({ level: 'skipped' });
    const failing = (code: 'auth-required' | 'blocked' | 'platform-failed') =>
      rig().attempt(() => Promise.reject(new TillsyncError(code, 'It went wrong.', { hint: 'Do this.' })));
    expect(await failing('auth-required')).toMatchObject({ level: 'skipped' });
    expect(await failing('blocked')).toMatchObject({ level: 'warn', remedy: 'Do this.' });
    expect(await failing('platform-failed')).toMatchObject({ level: 'fail', remedy: 'Do this.' });
  });

  test('may be paused by the platform, which is told; waiting for a turn is usual', () => {
    expect(limitsOutcome([wait(500)]).level).toBe('ok');
    expect(limitsOutcome([{ ...wait(60_000), reason: 'blocked' }])).toMatchObject({
      level: 'warn',
      message: 'The platform asked for a pause of product.list, for 1m more.',
    });
  });
});

test('the way to the platform is tried without asking anything, and what is wrong with it is told', async () => {
  const { signal } = new AbortController();
  const plain = createServer((socket) => {
    socket
      .on('error', () => socket.destroy())
      .on('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  }).listen(0, '127.0.0.1');
  await once(plain, 'listening');
  const { port } = plain.address() as AddressInfo;
  expect(await networkOutcome({ baseUrl: `http://127.0.0.1:${port}/base` }, signal)).toMatchObject({
    level: 'ok',
  });
  expect(await networkOutcome({ baseUrl: `https://127.0.0.1:${port}` }, signal)).toMatchObject({
    level: 'fail',
  });
  plain.close();
  await once(plain, 'close');
  expect(await networkOutcome({ baseUrl: `http://127.0.0.1:${port}` }, signal)).toMatchObject({
    level: 'fail',
    message: `Cannot reach the platform: 127.0.0.1 refuses connections on port ${port} (ECONNREFUSED).`,
  });
});
