import { describe, expect, it } from 'vitest';
import { CALLBACKS_SILENT } from '../../src/core/alarm.ts';
import { type ErrorCode, TillsyncError } from '../../src/core/errors.ts';
import { silentLog } from '../../src/core/log.ts';
import { WebhookMonitor } from '../../src/orders/receiving/order-loop.ts';
import type { WebhookChange } from '../../src/platform/platform.ts';
import type { WebhookState } from '../../src/platform/schemas.ts';
import {
  NO_WEBHOOK_MEMORY,
  type WebhookMemory,
  WebhookRegistration,
  WebhookSecrets,
  webhookLoop,
} from '../../src/platform/webhook-registration.ts';
import { FakeClock } from '../support/fake-clock.ts';

type WebhookRegistrationOptions = ConstructorParameters<typeof WebhookRegistration>[0];

const URL_HERE = 'https://store.example/webhook';

function memoryStore() {
  let memory: WebhookMemory = NO_WEBHOOK_MEMORY;
  return {
    read: () => memory,
    update(change: (memory: WebhookMemory) => WebhookMemory) {
      memory = change(memory);
    },
  };
}

function setUp(handedIn: string[], there: WebhookState | null | 'unsupported' = null) {
  const clock = new FakeClock();
  const store = memoryStore();
  const secrets = new WebhookSecrets({ handedIn, store, clock });
  const puts: WebhookChange[] = [];
  const alarms = new Map<string, string>();
  const platform = {
    there,
    loseAnswer: false,
    ignoresActive: false,
    /** Refuses a PUT with the field that switches sending, whose name is a guess. */
    refusesActive: false,
    putFault: undefined as TillsyncError | undefined,
    readFault: undefined as TillsyncError | undefined,
    async webhookGet() {
      if (platform.readFault) throw platform.readFault;
      return platform.there;
    },
    async webhookPut(change: WebhookChange): Promise<WebhookState> {
      puts.push(change);
      if (platform.putFault) throw platform.putFault;
      if (platform.refusesActive && change.active !== undefined) {
        throw new TillsyncError('platform-refused', 'property active should not exist', { httpStatus: 400 });
      }
      const before = platform.there === 'unsupported' ? null : platform.there;
      const state: WebhookState = {
        callbackUrl: change.callbackUrl ?? before?.callbackUrl ?? null,
        active: platform.ignoresActive ? false : (change.active ?? before?.active ?? true),
        hasSecret: change.secret === undefined ? (before?.hasSecret ?? false) : change.secret !== '',
      };
      if (platform.there !== 'unsupported') platform.there = state;
      if (platform.loseAnswer) throw new Error('the answer was lost');
      return state;
    },
  };
  const options: WebhookRegistrationOptions = {
    platform,
    secrets,
    store,
    callbackUrl: URL_HERE,
    alarms: {
      note: (key, trouble) => void (trouble === null ? alarms.delete(key) : alarms.set(key, trouble)),
    },
    clock,
    log: silentLog,
  };
  const registration = new WebhookRegistration(options);
  return { options, clock, store, secrets, puts, alarms, platform, registration };
}

describe('WebhookRegistration', () => {
  it('registers once, and finds it equal from then on', async () => {
    const { registration, puts } = setUp(['s1']);
    expect(await registration.ensure()).toBe('registered');
    expect(puts).toEqual([{ callbackUrl: URL_HERE, secret: 's1' }]);
    expect(await registration.ensure()).toBe('equal');
    expect(puts).toHaveLength(1);
  });

  it.each<[ErrorCode, number]>([
    ['platform-refused', 400],
    ['platform-garbled', 200],
    ['platform-failed', 501],
    ['forbidden', 403],
    ['unauthorized', 401],
  ])('registers also where the read is not offered and answers %s', async (code, httpStatus) => {
    const { registration, puts, platform } = setUp(['s1']);
    platform.readFault = new TillsyncError(code, 'Cannot GET /webhook', { httpStatus });
    expect(await registration.ensure()).toBe('registered');
    expect(await registration.ensure()).toBe('equal');
    expect(puts).toHaveLength(1);
    await registration.compare();
  });

  it('asks once for a read that is answered with 401, since each further one would renew the tokens', async () => {
    const { registration, platform } = setUp(['s1']);
    platform.readFault = new TillsyncError('unauthorized', 'no', { httpStatus: 401 });
    await registration.ensure();
    platform.readFault = new TillsyncError('internal', 'asked again');
    await registration.compare();
    expect(await registration.ensure()).toBe('equal');
  });

  it('ends the alarm of a webhook that is configured away', async () => {
    const { options, registration, alarms, platform } = setUp(['s1']);
    platform.there = { callbackUrl: 'https://elsewhere.example/', active: true, hasSecret: true };
    await registration.compare();
    expect([...alarms.keys()]).toEqual(['webhook.mismatch']);
    const without = new WebhookRegistration({ ...options, callbackUrl: '' });
    expect(await without.ensure()).toBe('nothing-to-register');
    expect([...alarms.keys()]).toEqual([]);
  });

  it('registers nothing while it cannot know what is there', async () => {
    const { registration, puts, platform } = setUp(['s1']);
    platform.readFault = new TillsyncError('platform-failed', 'down', { httpStatus: 503 });
    await expect(registration.ensure()).rejects.toMatchObject({ code: 'platform-failed' });
    expect(puts).toEqual([]);
  });

  it('registers again after the handed-in secret changed, or somebody changed the address', async () => {
    const { registration, puts, platform, store, clock } = setUp(['s1']);
    await registration.ensure();
    platform.there = { callbackUrl: 'https://elsewhere.example/', active: true, hasSecret: true };
    expect(await registration.ensure()).toBe('registered');
    const later = new WebhookRegistration({
      platform,
      secrets: new WebhookSecrets({ handedIn: ['s2'], store, clock }),
      store,
      callbackUrl: URL_HERE,
      alarms: { note() {} },
      clock,
      log: silentLog,
    });
    expect(await later.ensure()).toBe('registered');
    expect(puts.at(-1)?.secret).toBe('s2');
  });

  it('switches callbacks on again that somebody switched off', async () => {
    const { registration, puts, platform } = setUp(['s1']);
    await registration.ensure();
    platform.there = { callbackUrl: URL_HERE, active: false, hasSecret: true };
    expect(await registration.ensure()).toBe('registered');
    expect(puts.at(-1)).toMatchObject({ active: true });
  });

  it('does not write at each start where the platform offers no read', async () => {
    const { registration, puts } = setUp(['s1'], 'unsupported');
    await registration.ensure();
    await registration.ensure();
    expect(puts).toHaveLength(1);
  });

  it('says so when the enable flag had no effect', async () => {
    const { registration, platform, alarms } = setUp(['s1']);
    platform.ignoresActive = true;
    await expect(registration.ensure()).rejects.toMatchObject({
      code: 'platform-refused',
      hint: expect.stringContaining('platform.quirks.webhook_active_field'),
    });
    expect([...alarms.keys()]).toEqual(['webhook.active-field']);
    platform.ignoresActive = false;
    expect(await registration.ensure()).toBe('registered');
    expect([...alarms.keys()]).toEqual([]);
  });

  it('needs no enable flag to register, and tells when one is needed and refused', async () => {
    const { registration, platform, alarms, puts } = setUp(['s1']);
    platform.refusesActive = true;
    expect(await registration.ensure()).toBe('registered');
    expect([...alarms.keys()]).toEqual([]);
    platform.there = { callbackUrl: URL_HERE, active: false, hasSecret: true };
    await expect(registration.ensure()).rejects.toMatchObject({ code: 'platform-refused' });
    expect(puts.slice(1)).toEqual([
      { callbackUrl: URL_HERE, secret: 's1' },
      { callbackUrl: URL_HERE, secret: 's1', active: true },
    ]);
    expect([...alarms]).toEqual([
      ['webhook.active-field', 'The platform refused it: property active should not exist'],
    ]);
    platform.refusesActive = false;
    expect(await registration.ensure()).toBe('registered');
    expect([...alarms.keys()]).toEqual([]);
  });

  it.each<[ErrorCode, number | undefined, number]>([
    ['platform-refused', 400, 1],
    ['platform-garbled', 404, 1],
    ['forbidden', 403, 1],
    ['unauthorized', 401, 1],
    ['platform-failed', 500, 3],
    ['platform-unreachable', undefined, 0],
    ['rate-limited', 429, 0],
    ['blocked', 403, 0],
    ['auth-required', 401, 0],
  ])(
    'a registration that fails with %s is told after as many tries: %i, %i',
    async (code, httpStatus, tries) => {
      const { registration, platform, alarms, clock } = setUp(['s1']);
      const error = new TillsyncError(code, 'Not now.', httpStatus === undefined ? {} : { httpStatus });
      platform.putFault = error;
      for (let i = 1; i <= 4; i++) {
        await expect(registration.ensure()).rejects.toBe(error);
        const isTold = tries > 0 && i >= tries;
        expect([...alarms]).toEqual(
          isTold ? [['webhook.mismatch', 'The webhook could not be registered: Not now.']] : [],
        );
        await clock.advance(300_000);
      }
      platform.putFault = undefined;
      expect(await registration.ensure()).toBe('registered');
      expect([...alarms.keys()]).toEqual([]);
    },
  );

  it.each<[ErrorCode, number | undefined]>([
    ['platform-failed', 500],
    ['platform-unreachable', undefined],
    ['rate-limited', 429],
  ])('registers at the third try where the read alone fails with %s', async (code, httpStatus) => {
    const { registration, platform, puts } = setUp(['s1']);
    platform.readFault = new TillsyncError(code, 'no', httpStatus === undefined ? {} : { httpStatus });
    for (let i = 0; i < 2; i++) await expect(registration.ensure()).rejects.toMatchObject({ code });
    expect(puts).toEqual([]);
    expect(await registration.ensure()).toBe('registered');
    expect(await registration.ensure()).toBe('equal');
    expect(puts).toHaveLength(1);
  });

  it('makes a secret where there is none, because each callback would be refused', async () => {
    const { registration, secrets, clock, puts } = setUp([]);
    const ensuring = registration.ensure();
    await clock.advance(1_000);
    expect(await ensuring).toBe('registered');
    expect(secrets.accepted()).toEqual([puts[0]?.secret]);
    expect(await registration.ensure()).toBe('equal');
    expect(puts).toHaveLength(1);
  });

  it('stays off over every start once a person switched it off, until they switch it on', async () => {
    const { options, registration, platform, alarms, puts, store } = setUp(['s1']);
    await registration.ensure();
    await registration.choose({ callbackUrl: URL_HERE, isOff: true });
    expect(platform.there).toMatchObject({ active: false });
    for (let start = 0; start < 3; start++) {
      const later = new WebhookRegistration(options);
      expect(await later.ensure()).toBe('off');
      await later.compare();
    }
    expect(puts).toHaveLength(2);
    expect([...alarms.keys()]).toEqual([]);
    // A plain `set` keeps the choice.
    await registration.choose({ callbackUrl: URL_HERE });
    expect(platform.there).toMatchObject({ active: false });

    platform.there = { callbackUrl: URL_HERE, active: true, hasSecret: true };
    await registration.compare();
    expect(alarms.get('webhook.mismatch')).toContain('{tillsync} webhook set --off');
    expect(await new WebhookRegistration(options).ensure()).toBe('off');
    expect(platform.there).toMatchObject({ active: false });
    expect([...alarms.keys()]).toEqual([]);

    await registration.choose({ callbackUrl: URL_HERE, isOff: false });
    expect(platform.there).toMatchObject({ active: true });
    expect(store.read().isOff).toBe(false);
    expect(await registration.ensure()).toBe('equal');
  });

  it('stays off where the platform shows no webhook, and off is not noted if the platform refuses it', async () => {
    const { registration, platform, puts, alarms, store } = setUp(['s1'], 'unsupported');
    platform.refusesActive = true;
    await registration.ensure();
    await expect(registration.choose({ callbackUrl: URL_HERE, isOff: true })).rejects.toMatchObject({
      code: 'platform-refused',
      hint: expect.stringContaining('platform.quirks.webhook_active_field'),
    });
    expect(store.read().isOff).toBe(false);
    expect([...alarms.keys()]).toEqual([]);
    platform.refusesActive = false;
    await registration.choose({ callbackUrl: URL_HERE, isOff: true });
    const before = puts.length;
    expect(await registration.ensure()).toBe('off');
    expect(puts).toHaveLength(before);
  });

  it('clears the secret by choice alone, stays so, and takes a new one by a rotation', async () => {
    const { options, registration, platform, secrets, clock, puts } = setUp(['s1']);
    await registration.ensure();
    const clearing = registration.choose({ callbackUrl: URL_HERE, isWithoutSecret: true });
    // Callbacks without the header are accepted before the platform is told, those with the old secret further on.
    await clock.advance(499);
    expect(secrets.accepted()).toEqual(['s1', '']);
    expect(puts).toHaveLength(1);
    await clock.advance(1_000);
    await clearing;
    expect(puts.at(-1)).toMatchObject({ secret: '' });
    expect(platform.there).toMatchObject({ hasSecret: false, active: true });
    expect(await new WebhookRegistration(options).ensure()).toBe('equal');
    await registration.choose({ callbackUrl: URL_HERE });
    expect(platform.there).toMatchObject({ hasSecret: false });

    const rotating = registration.rotateSecret();
    await clock.advance(1_000);
    await rotating;
    expect(secrets.accepted()).not.toContain('');
    expect(platform.there).toMatchObject({ hasSecret: true });
    expect(await registration.ensure()).toBe('equal');
  });

  it('goes on to ask for a secret where the platform refused to clear it', async () => {
    const { registration, platform, secrets, clock } = setUp(['s1']);
    await registration.ensure();
    platform.putFault = new TillsyncError('platform-refused', 'secret must not be empty', {
      httpStatus: 400,
    });
    const refused = expect(
      registration.choose({ callbackUrl: URL_HERE, isWithoutSecret: true }),
    ).rejects.toMatchObject({ code: 'platform-refused' });
    await clock.advance(1_000);
    await refused;
    await clock.advance(1_000);
    expect(secrets.accepted()).toEqual(['s1']);
  });

  it('accepts callbacks without the header where the platform cleared the secret and refused only to switch on', async () => {
    const { registration, platform, secrets, clock } = setUp(['s1']);
    await registration.ensure();
    platform.there = { callbackUrl: URL_HERE, active: false, hasSecret: true };
    platform.refusesActive = true;
    const refused = expect(
      registration.choose({ callbackUrl: URL_HERE, isWithoutSecret: true, isOff: false }),
    ).rejects.toMatchObject({ code: 'platform-refused' });
    await clock.advance(1_000);
    await refused;
    await clock.advance(1_000);
    expect(platform.there).toMatchObject({ hasSecret: false });
    expect(secrets.accepted()).toEqual(['s1', '']);
  });

  it('raises an alarm, and changes nothing, when somebody redirected the callbacks', async () => {
    const { registration, platform, alarms, puts } = setUp(['s1']);
    await registration.ensure();
    platform.there = { callbackUrl: 'https://elsewhere.example/', active: true, hasSecret: true };
    await registration.compare();
    expect([...alarms.keys()]).toContain('webhook.mismatch');
    expect(puts).toHaveLength(1);
  });
});

describe('rotating the secret', () => {
  it('accepts both from before the platform is told, and the old one for an hour after', async () => {
    const { registration, secrets, clock, puts } = setUp(['old']);
    await registration.ensure();
    const rotating = registration.rotateSecret();
    await clock.advance(499);
    expect(puts).toHaveLength(1);
    expect(secrets.accepted()).toHaveLength(2);
    await clock.advance(1_000);
    await rotating;
    const fresh = puts.at(-1)?.secret as string;
    expect(secrets.current()).toBe(fresh);
    expect(new Set(secrets.accepted())).toEqual(new Set(['old', fresh]));
    await clock.advance(3_600_000);
    expect(secrets.accepted()).toEqual([fresh]);
  });

  it('goes on accepting both when the answer was lost', async () => {
    const { registration, secrets, clock, puts, platform } = setUp(['old']);
    platform.loseAnswer = true;
    const rotating = registration.rotateSecret();
    const refused = expect(rotating).rejects.toThrow();
    await clock.advance(1_000);
    await refused;
    await clock.advance(24 * 3_600_000);
    expect(new Set(secrets.accepted())).toEqual(new Set(['old', puts.at(-1)?.secret]));
  });

  it('goes on accepting the one of a lost answer through the next rotation', async () => {
    const { registration, secrets, clock, puts, platform } = setUp(['old']);
    platform.loseAnswer = true;
    for (let i = 0; i < 2; i++) {
      const refused = expect(registration.rotateSecret()).rejects.toThrow();
      await clock.advance(1_000);
      await refused;
    }
    const sent = puts.map(({ secret }) => secret);
    expect(new Set(secrets.accepted())).toEqual(new Set(['old', ...sent]));
    platform.loseAnswer = false;
    const rotating = registration.rotateSecret();
    await clock.advance(1_000);
    await rotating;
    expect(secrets.accepted()[0]).toBe(puts.at(-1)?.secret);
    expect(secrets.accepted()).not.toContain(sent[0]);
  });

  it('goes on accepting what it knows while state.db is out of reach', async () => {
    const { secrets, store, clock } = setUp(['s1']);
    expect(secrets.accepted()).toEqual(['s1']);
    const read = store.read;
    store.read = () => {
      throw new TillsyncError('storage-busy', 'The database is locked by another process.');
    };
    await clock.advance(60_000);
    expect(secrets.accepted()).toEqual(['s1']);
    store.read = read;
    expect(secrets.accepted()).toEqual(['s1']);
  });

  it('lets a different secret handed in later win', async () => {
    const { registration, store, clock } = setUp(['old']);
    const rotating = registration.rotateSecret();
    await clock.advance(1_000);
    await rotating;
    const later = new WebhookSecrets({ handedIn: ['by hand'], store, clock });
    expect(later.current()).toBe('by hand');
    expect(later.accepted()).toEqual(['by hand']);
  });
});

describe('WebhookMonitor', () => {
  function watchSetUp() {
    const reports: string[] = [];
    const failures: (string | undefined)[] = [];
    const watch = new WebhookMonitor({
      enabled: true,
      freshness: {
        ok: (subject) => void reports.push(`${subject} ok`),
        report(subject, state, _message, failure) {
          reports.push(`${subject} ${state}`);
          failures.push(failure);
        },
      },
      log: silentLog,
    });
    return { watch, reports, failures };
  }

  it('is silent about the first poll and about orders whose notification comes late', () => {
    const { watch, reports } = watchSetUp();
    watch.polled(['a', 'b']);
    watch.polled(['c']);
    watch.announced('c');
    watch.polled([]);
    expect(reports).toEqual([]);
  });

  it('is silent about the orders of a line cut once a later order is announced', () => {
    const { watch, reports } = watchSetUp();
    watch.polled([]);
    watch.polled(['a', 'b', 'c']);
    watch.announced('d');
    watch.polled([]);
    expect(reports).toEqual([]);
  });

  it('tells when polls bring orders that no webhook announced, and when that is over', () => {
    const { watch, reports, failures } = watchSetUp();
    watch.polled([]);
    watch.polled(['a']);
    watch.polled(['b', 'c']);
    expect(reports).toEqual(['orders.webhook degraded']);
    watch.polled([]);
    expect(failures).toEqual([undefined, CALLBACKS_SILENT]);
    watch.polled(['lost too']);
    watch.announced('d');
    watch.polled(['e']);
    expect(reports.at(-1)).toBe('orders.webhook ok');
    watch.polled([]);
    expect(reports.at(-1)).toBe('orders.webhook degraded');
  });
});

describe('webhookLoop', () => {
  /** Runs the loop on a clock of its own. `calls` has the requests to the platform with their times in seconds. */
  function loop(outcomes: (Error | undefined)[], { mayCall = (): boolean => true } = {}) {
    const clock = new FakeClock();
    const startMs = clock.monotonicMs();
    const stop = new AbortController();
    const calls: string[] = [];
    const call = (name: string) => async () => {
      calls.push(`${name} ${(clock.monotonicMs() - startMs) / 1_000}`);
      const outcome = outcomes.shift();
      if (outcome) throw outcome;
      return 'equal' as const;
    };
    const registration = { ensure: call('ensure'), compare: async () => void (await call('compare')()) };
    // This random value makes the jitter zero.
    const random = { next: () => 1 };
    const options = { registration, mayCall, clock, random, log: silentLog, beat: () => {} };
    const ended = webhookLoop(options, stop.signal);
    const end = async () => {
      stop.abort();
      await ended;
    };
    return { calls, clock, end };
  }

  const failure = () => new Error('no answer');

  it('registers once, then compares each hour', async () => {
    const { calls, clock, end } = loop([]);
    await clock.advance(2 * 3_600_000 + 1_000);
    await end();
    expect(calls).toEqual(['ensure 0', 'compare 3600', 'compare 7200']);
  });

  it('tries to register until it worked, after 5, 10, 20 … seconds, and begins anew after a success', async () => {
    const { calls, clock, end } = loop([failure(), failure(), failure(), undefined, failure()]);
    await clock.advance(2 * 3_600_000);
    await end();
    expect(calls).toEqual(['ensure 0', 'ensure 5', 'ensure 15', 'ensure 35', 'compare 3635', 'compare 3640']);
  });

  it('waits as long as the platform asks', async () => {
    const busy = new TillsyncError('rate-limited', 'too many', { retryAfterMs: 90_000 });
    const { calls, clock, end } = loop([busy]);
    await clock.advance(100_000);
    await end();
    expect(calls).toEqual(['ensure 0', 'ensure 90']);
  });

  it('calls nobody while it is locked out, and goes on within seconds of new tokens', async () => {
    let mayCall = true;
    const { calls, clock, end } = loop([failure()], { mayCall: () => mayCall });
    await clock.advance(1_000);
    mayCall = false;
    await clock.advance(600_000);
    expect(calls).toEqual(['ensure 0']);
    mayCall = true;
    await clock.advance(5_000);
    await end();
    expect(calls).toHaveLength(2);
  });

  it('ends at once, also while a call fails because of it', async () => {
    const { calls, clock, end } = loop([]);
    await clock.advance(0);
    await end();
    expect(calls).toEqual(['ensure 0']);
  });
});
