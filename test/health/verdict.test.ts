import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FRESHNESS_STATES,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessState,
  type FreshnessSubject,
} from '../../src/core/alarm.ts';
import type { Facts } from '../../src/health/facts.ts';
import { FINDINGS } from '../../src/health/findings.ts';
import { verdictOf } from '../../src/health/verdict.ts';

const nowMs = Date.parse('2026-01-15T12:00:00.000Z');
const ago = (ms: number) => new Date(nowMs - ms).toISOString();
const flow = (subject: FreshnessSubject, more: Partial<Freshness> = {}): Freshness => ({
  subject,
  state: 'ok',
  lastOkAt: ago(30_000),
  lastTryAt: ago(30_000),
  message: '',
  ...more,
});
const well: Facts = {
  nowMs,
  freshness: FRESHNESS_SUBJECTS.map((subject) => flow(subject)),
  alarms: [],
  tokens: { state: 'ok', refreshExpiresInMs: 20 * 86_400_000 },
  outbox: { pending: 2, held: 0, rejected: 0, oldestPendingAt: ago(1_000) },
  quarantine: 0,
  ordersStaleAfterMs: 600_000,
};
const withFlow = (subject: FreshnessSubject, more: Partial<Freshness>): Facts => ({
  ...well,
  freshness: well.freshness.map((each) => (each.subject === subject ? { ...each, ...more } : each)),
});
const alarm = (key: string) => ({ key, message: `about ${key}`, raisedAt: ago(60_000) });
const told = (facts: Facts) => {
  const { level, findings } = verdictOf(facts);
  return [level, ...findings.map(({ code }) => code)];
};

it('is green when all is well, what is switched off included', () => {
  expect(verdictOf(well)).toEqual({ level: 'green', findings: [] });
  expect(told(withFlow('orders.webhook', { state: 'off', lastOkAt: null }))).toEqual(['green']);
  expect(told(withFlow('orders.poll', { state: 'waiting' }))).toEqual(['green']);
  expect(told({ ...well, tokens: null, outbox: null })).toEqual(['green']);
});

describe('orders', () => {
  it('are awaited at the first start, then missed', () => {
    expect(told(withFlow('orders.poll', { state: 'unknown', lastOkAt: null }))).toEqual([
      'amber',
      'orders.starting',
    ]);
    expect(told(withFlow('orders.poll', { state: 'failing', lastOkAt: null }))).toEqual([
      'red',
      'orders.stale',
    ]);
  });

  it('may be as old as polling allows, and no older', () => {
    const old = (ms: number, ordersStaleAfterMs = 600_000) =>
      told({ ...withFlow('orders.poll', { lastOkAt: ago(ms) }), ordersStaleAfterMs });
    expect(old(600_000)).toEqual(['green']);
    expect(old(600_001)).toEqual(['red', 'orders.stale']);
    expect(old(3_600_000, 7_200_000)).toEqual(['green']);
    expect(old(-50_000)).toEqual(['green']);
  });

  it('that fail for a moment are amber, with the words of who noticed', () => {
    const facts = withFlow('orders.poll', { state: 'failing', message: 'No answer.' });
    expect(verdictOf(facts).findings).toMatchObject([
      { code: 'orders.poll', level: 'amber', detail: 'No answer.', since: ago(30_000) },
    ]);
  });

  it('that fail for one reason, try after try, are stale before they are old', () => {
    const failing = (code: string, tries: number, sinceMs: number) =>
      withFlow('orders.poll', {
        state: 'failing',
        message: 'No connection.',
        lastOkAt: ago(240_000),
        failure: { code, since: ago(sinceMs), tries },
      });
    expect(told(failing('ECONNREFUSED', 1, 120_000))).toEqual(['amber', 'orders.poll']);
    expect(told(failing('ECONNREFUSED', 5, 30_000))).toEqual(['amber', 'orders.poll']);
    for (const code of ['UND_ERR_CONNECT_TIMEOUT', 'EAI_AGAIN', 'ENETUNREACH', 'platform-failed'])
      expect(told(failing(code, 5, 240_000)), code).toEqual(['amber', 'orders.poll']);
    const remedies = ['ECONNREFUSED', 'ENOTFOUND', 'CERT_HAS_EXPIRED', 'unauthorized'].map((code) => {
      const [first] = verdictOf(failing(code, 2, 120_000)).findings;
      expect(first).toMatchObject({ code: 'orders.stale', level: 'red', detail: 'No connection.' });
      return first?.remedy;
    });
    expect(new Set(remedies).size).toBe(4);
  });

  it('that cannot be kept have the disk as their cause', () => {
    const facts = withFlow('orders.poll', {
      state: 'failing',
      lastOkAt: ago(700_000),
      failure: { code: 'storage-full', since: ago(600_000), tries: 5 },
    });
    const full = { ...facts, disk: { freeBytes: 1, totalBytes: 8 * 1024 ** 3 } };
    expect(verdictOf(full).findings).toMatchObject([
      { code: 'storage.full', level: 'red' },
      { code: 'orders.stale', remedy: '' },
    ]);
  });

  it('that an alarm tells of are told once', () => {
    const failing = withFlow('orders.poll', { state: 'failing', message: 'No answer.' });
    expect(told({ ...failing, alarms: [alarm('orders.stale')] })).toEqual(['red', 'orders.stale']);
    expect(
      verdictOf({ ...failing, alarms: [alarm('orders.stale')] }).findings.map(({ detail }) => detail),
    ).toEqual(['about orders.stale']);
  });
});

describe('tokens', () => {
  it.each([
    ['none', 'auth.none'],
    ['locked-out', 'auth.locked-out'],
  ] as const)('that are %s are the one thing to do', (state, code) => {
    const facts: Facts = {
      ...well,
      freshness: FRESHNESS_SUBJECTS.map((subject) => flow(subject, { state: 'failing', lastOkAt: null })),
      tokens: { state, refreshExpiresInMs: -5 },
      outbox: { pending: 9, held: 0, rejected: 1, oldestPendingAt: ago(3_600_000) },
      alarms: [alarm('orders.stale')],
    };
    expect(told(facts)).toEqual(['red', code, 'hub.link', 'outbox.rejected', 'backup', 'orders.webhook']);
  });

  it('that were just renewed are not doubted for what a flow noted before', () => {
    expect(told(withFlow('outbox.push', { state: 'locked-out' }))).toEqual(['green']);
    const never = { state: 'none', refreshExpiresInMs: null } as const;
    expect(told({ ...withFlow('orders.poll', { state: 'locked-out' }), tokens: never })).toEqual([
      'red',
      'auth.none',
    ]);
    expect(told({ ...withFlow('outbox.push', { state: 'locked-out' }), tokens: null })).toEqual([
      'red',
      'auth.locked-out',
    ]);
  });

  it('that end within three days are told', () => {
    const ending = (refreshExpiresInMs: number | null) =>
      told({ ...well, tokens: { state: 'ok', refreshExpiresInMs } });
    expect(ending(3 * 86_400_000)).toEqual(['green']);
    expect(ending(3 * 86_400_000 - 1)).toEqual(['amber', 'auth.expiring']);
    expect(ending(null)).toEqual(['green']);
  });
});

describe('changes', () => {
  const waiting = (ms: number, silentMs: number | null = ms) => {
    const push = withFlow('outbox.push', { lastOkAt: silentMs === null ? null : ago(silentMs) });
    return verdictOf({ ...push, outbox: { pending: 4, held: 0, rejected: 0, oldestPendingAt: ago(ms) } });
  };

  it('that wait are late after five minutes, and lost after thirty in which none arrived', () => {
    expect(waiting(299_999).level).toBe('green');
    expect(waiting(300_000)).toMatchObject({
      level: 'amber',
      findings: [{ code: 'outbox.stuck', count: 4, since: ago(300_000) }],
    });
    expect(waiting(300_000).findings[0]?.message).toContain(': 4.');
    expect(waiting(1_799_999).level).toBe('amber');
    expect(waiting(1_800_000).level).toBe('red');
    expect(waiting(1_800_000, null).level).toBe('red');
    expect(waiting(7_200_000, 1_799_999).level).toBe('amber');
    expect(waiting(240_000, 7_200_000).level).toBe('green');
  });

  it('that were refused or held are counted from the outbox, not from an alarm of yesterday', () => {
    const alarms = [alarm('outbox.rejected'), alarm('outbox.held'), alarm('outbox.stuck')];
    expect(told({ ...well, alarms })).toEqual(['green']);
    expect(told({ ...well, alarms, outbox: null })).toEqual([
      'amber',
      ...['outbox.stuck', 'outbox.rejected', 'outbox.held'],
    ]);
    const outbox = { pending: 0, held: 7, rejected: 3, oldestPendingAt: null };
    expect(verdictOf({ ...well, outbox }).findings.map(({ code, count }) => [code, count])).toEqual([
      ['outbox.rejected', 3],
      ['outbox.held', 7],
    ]);
  });
});

it('does not stumble over an alarm of another version', () => {
  expect(told({ ...well, alarms: [alarm('moon.full'), alarm('toString')] })).toEqual(['green']);
});

it('tells a block once, whatever it holds up', () => {
  const freshness = well.freshness.map((each) => ({ ...each, state: 'blocked' as const }));
  expect(told({ ...well, freshness })).toEqual(['amber', 'platform.blocked']);
  // Any later answer proves that the block is over, even for flows that have not tried again.
  const answered = { ...well.freshness[0], lastOkAt: ago(0) } as Freshness;
  expect(told({ ...well, freshness: [answered, ...freshness.slice(1)] })).toEqual(['green']);
});

it('has the level of its worst finding, tells each once, and leaves no place unfilled', () => {
  const someTime = fc.option(
    fc.integer({ min: -1_000, max: 10_000_000 }).map((ms) => ago(ms)),
    { nil: null },
  );
  const facts: fc.Arbitrary<Facts> = fc.record({
    nowMs: fc.constant(nowMs),
    freshness: fc.tuple(
      ...FRESHNESS_SUBJECTS.map((subject) =>
        fc.record({
          subject: fc.constant(subject),
          state: fc.constantFrom(...FRESHNESS_STATES),
          lastOkAt: someTime,
          lastTryAt: someTime,
          message: fc.constantFrom('', 'words'),
        }),
      ),
    ),
    alarms: fc
      .uniqueArray(fc.constantFrom(...Object.keys(FINDINGS)))
      .map((keys) => keys.map((key) => alarm(key))),
    tokens: fc.constantFrom(null, well.tokens, { state: 'none' as const, refreshExpiresInMs: null }),
    outbox: fc.option(
      fc.record({ pending: fc.nat(9), held: fc.nat(2), rejected: fc.nat(2), oldestPendingAt: someTime }),
      { nil: null },
    ),
    quarantine: fc.nat(2),
    ordersStaleAfterMs: fc.constant(600_000),
  });
  fc.assert(
    fc.property(facts, (given) => {
      const { level, findings } = verdictOf(given);
      expect(new Set(findings.map(({ code }) => code)).size).toBe(findings.length);
      const reds = findings.filter((finding) => finding.level === 'red');
      expect(findings.slice(0, reds.length)).toEqual(reds);
      expect(level).toBe(reds.length > 0 ? 'red' : findings.length > 0 ? 'amber' : 'green');
      if (given.tokens?.state === 'none') expect(level).toBe('red');
      for (const { message, remedy } of findings) {
        expect(message + remedy).not.toMatch(/[{}]|undefined|null/);
      }
    }),
  );
});

describe('the machine', () => {
  const MIB = 1024 ** 2;
  const disk = (freeMib: number) => ({ freeBytes: freeMib * MIB, totalBytes: 8192 * MIB });

  it('has a disk that is measured, whatever an alarm about it says, which may be old or not written', () => {
    expect(told({ ...well, disk: disk(4000), alarms: [alarm('storage.low')] })).toEqual(['green']);
    expect(told({ ...well, disk: disk(400) })).toEqual(['amber', 'storage.low']);
    expect(told({ ...well, disk: disk(40), alarms: [alarm('storage.low')] })).toEqual([
      'red',
      'storage.full',
    ]);
    expect(verdictOf({ ...well, disk: disk(40) }).findings[0]?.detail).toBe(
      'Only 40 MiB of 8.0 GiB are free.',
    );
    expect(told({ ...well, disk: null, alarms: [alarm('storage.low')] })).toEqual(['amber', 'storage.low']);
  });

  it('has a state.db that cannot be used: all may look well, and nothing is fetched or sent', () => {
    expect(told({ ...well, tokens: null, stateFault: 'It is damaged.' })).toEqual(['red', 'state.unusable']);
    expect(told({ ...well, tokens: null, stateFault: null })).toEqual(['green']);
  });

  it('that does not run tillsync explains what is old; what needs a person beside it is still told', () => {
    const old = withFlow('orders.poll', { lastOkAt: ago(86_400_000) });
    expect(told({ ...old, running: true })).toEqual(['red', 'orders.stale']);
    expect(told({ ...old, running: false, quarantine: 1 })).toEqual(['red', 'service.down', 'quarantine']);
    const tokens = { state: 'locked-out', refreshExpiresInMs: null } as const;
    expect(told({ ...old, running: false, tokens })).toEqual(['red', 'service.down', 'auth.locked-out']);
  });
});

describe('why no orders are fetched', () => {
  const stale = alarm('orders.stale');
  const polls = (state: FreshnessState) => withFlow('orders.poll', { state, lastOkAt: ago(3_600_000) });

  it('is told before what follows from it, and as serious, with the remedy of the cause alone', () => {
    const blocked = verdictOf({ ...polls('blocked'), alarms: [stale] });
    expect(blocked.findings).toMatchObject([
      { code: 'platform.blocked', level: 'red' },
      { code: 'orders.stale', level: 'red', remedy: '' },
    ]);
    const unreadable = verdictOf({ ...polls('failing'), alarms: [stale, alarm('orders.unreadable')] });
    expect(unreadable.findings).toMatchObject([
      { code: 'orders.unreadable', level: 'red' },
      { code: 'orders.stale', remedy: '' },
    ]);
    const failure = { code: 'rate-limited', tries: 2, since: ago(3_600_000) } as const;
    const shared = withFlow('orders.poll', { state: 'failing', lastOkAt: ago(3_600_000), failure });
    expect(verdictOf({ ...shared, alarms: [stale, alarm('platform.limits-shared')] }).findings).toMatchObject(
      [
        { code: 'platform.limits-shared', level: 'red', remedy: expect.stringContaining('second tillsync') },
        { code: 'orders.stale', level: 'red', remedy: '' },
      ],
    );
  });

  it('is the way to the platform where nothing else is known', () => {
    const [first] = verdictOf({ ...polls('failing'), alarms: [stale] }).findings;
    expect(first).toMatchObject({ code: 'orders.stale', remedy: expect.stringContaining('internet') });
  });

  it('is nothing any more once new tokens are in place', () => {
    const waiting = { ...polls('locked-out'), alarms: [stale] };
    expect(told(waiting)).toEqual(['amber', 'orders.resuming']);
    expect(told({ ...waiting, tokens: { state: 'locked-out', refreshExpiresInMs: null } })).toEqual([
      'red',
      'auth.locked-out',
    ]);
    expect(told({ ...well, alarms: [alarm('auth.none')] })).toEqual(['green']);
  });
});

describe('the link to a hub', () => {
  const link = (code: string) => {
    const failure = { code, since: ago(60_000), tries: 3 };
    return withFlow('hub.link', { state: 'failing', message: 'words', failure });
  };
  const first = (facts: Facts) => verdictOf(facts).findings[0];

  it.each([
    ['ECONNREFUSED', 'tillsync-nats'],
    ['ENOTFOUND', 'link.hub'],
    ['CERT_HAS_EXPIRED', 'renew it at the hub'],
    ['SELF_SIGNED_CERT_IN_CHAIN', 'link.ca_file'],
    ['link-down', 'and the network'],
  ])('that is down for %s has its own remedy, which names %s', (code, words) => {
    expect(first(link(code))).toMatchObject({
      code: 'hub.link',
      level: 'amber',
      detail: 'words',
      remedy: expect.stringContaining(words),
    });
  });

  it('that the hub refuses needs a person', () => {
    expect(told(link('link-refused'))).toEqual(['red', 'hub.refused']);
  });
});
