/** Tests src/health/push-monitor.ts. */

import { describe, expect, it } from 'vitest';
import type { BranchMapping, UnmappedItem } from '../../src/catalog/unmapped.ts';
import type { AlarmKey, Freshness, FreshnessState } from '../../src/core/alarm.ts';
import type { FieldNews } from '../../src/core/values.ts';
import { HealthChecks, Recently } from '../../src/health/health-checks.ts';
import { PushMonitor } from '../../src/health/push-monitor.ts';
import type { HeldOrder } from '../../src/orders/merging/held-callbacks.ts';
import type {
  IncompleteOrder,
  MissingCodes,
  OddOrder,
  StatusWord,
  SumsOfOrders,
} from '../../src/orders/merging/incomplete-orders.ts';
import type { WaitingOrder } from '../../src/orders/merging/order.ts';
import { FakeClock } from '../support/fake-clock.ts';

const MIB = 1024 ** 2;
const MINUTE_MS = 60_000;
const NO_NEWS: FieldNews = { added: [], gone: [] };

describe('what no flow notices by itself', () => {
  function rig() {
    const up = new Map<AlarmKey, string>();
    const clock = new FakeClock();
    const [limited, wrongKeys] = [new Recently(clock), new Recently(clock)];
    const now = {
      freeMib: 9_000,
      hasNoTokens: false,
      waiting: [] as WaitingOrder[],
      incomplete: [] as IncompleteOrder[],
      held: [] as HeldOrder[],
      words: [] as StatusWord[],
      untold: [] as string[],
      forbidden: [] as { endpoint: string; message: string }[],
      callbacks: { refused: null, unreadable: null } as Record<'refused' | 'unreadable', string | null>,
      stray: [] as (OddOrder & { store: string | null })[],
      codes: { missing: [], codes: 0, usualShare: 0 } as MissingCodes,
      fields: { orders: NO_NEWS, products: NO_NEWS },
      sums: { orders: 0, odd: [], usualShare: 0 } as SumsOfOrders,
      mappings: [] as BranchMapping[],
      items: [] as UnmappedItem[],
      freshness: [] as Freshness[],
    };
    const facts = new HealthChecks({
      alarms: {
        note(key, trouble, level) {
          if (trouble === null) up.delete(key);
          else up.set(key, level ? `${level} ${trouble}` : trouble);
        },
      },
      disk: () => ({ freeBytes: now.freeMib * MIB, totalBytes: 10_000 * MIB }),
      hasNoTokens: () => now.hasNoTokens,
      clockSkewMs: () => undefined,
      freshness: () => now.freshness,
      orderCompanies: () => undefined,
      waitingOrders: () => now.waiting,
      stockDifferences: () => ({ count: 0, worst: [] }),
      silentPos: () => [],
      incompleteOrders: () => now.incomplete,
      heldOrders: () => now.held,
      unknownStatuses: () => now.words,
      strayOrders: () => now.stray,
      sumsOfOrders: () => now.sums,
      missingCodes: () => now.codes,
      fieldNews: () => now.fields,
      untold: () => now.untold,
      forbidden: () => now.forbidden,
      callbacks: () => now.callbacks,
      limited,
      wrongKeys,
      branchMappings: () => now.mappings,
      unmappedItems: () => now.items,
      unbookedAfterMs: 10 * MINUTE_MS,
      localTime: (iso) => iso.slice(11, 16),
      clock,
    });
    const look = (freeMib: number, hasNoTokens = false) => {
      Object.assign(now, { freeMib, hasNoTokens });
      facts.run();
      return [...up.keys()];
    };
    const waits = (...minutes: number[]) => {
      now.waiting = minutes.map((minute, i) => ({
        orderId: `o${i}`,
        code: 100 + i,
        since: new Date(clock.nowMs() - minute * MINUTE_MS).toISOString(),
      }));
      facts.run();
      return up.get('orders.unbooked');
    };
    return { up, look, waits, clock, now, facts, limited, wrongKeys };
  }

  it('is an order whose callbacks wait, and a status that the document does not name', () => {
    const { up, look, now } = rig();
    const order = { orderId: 'a', code: 12, createdAt: '2026-01-15T11:00:00.000Z' };
    now.held = [{ ...order, status: 'dispatched', heldStatus: 'payment-canceled' }];
    now.words = [{ word: 'PENDIENTE', orderId: 'a', code: 12 }];
    look(9_000);
    expect(up.get('orders.held')).toBe(
      'Orders, when they were placed, and mirror ≠ callback status: 12 (11:00) dispatched ≠ payment-canceled.',
    );
    expect(up.get('orders.status-unknown')).toBe('Statuses and orders: PENDIENTE (12).');
    now.held = [];
    now.words = [];
    expect(look(9_000)).toEqual([]);
  });

  it('is a disk that fills, is full, and has room again', () => {
    const { look, up } = rig();
    expect(look(600)).toEqual([]);
    expect(look(400)).toEqual(['storage.low']);
    expect(up.get('storage.low')).toContain('400 MiB');
    expect(look(510)).toEqual(['storage.low']);
    expect(look(10)).toEqual(['storage.low', 'storage.full']);
    expect(look(52)).toEqual(['storage.low', 'storage.full']);
    expect(look(100)).toEqual(['storage.low']);
    expect(look(600)).toEqual([]);
  });

  it('is a tillsync without tokens, until some are handed over', () => {
    const { look } = rig();
    expect(look(9_000, true)).toEqual(['auth.none']);
    expect(look(9_000)).toEqual([]);
  });

  it('is an order that waits for the POS, amber at first, red after three times as long', async () => {
    const { waits, clock } = rig();
    // The POS may be starting too, so it gets some minutes.
    expect(waits(60)).toBeUndefined();
    await clock.advance(5 * MINUTE_MS);
    expect(waits(9.9)).toBeUndefined();
    expect(waits(10, 3)).toBe('amber Orders, and since when they wait: 100 (11:55).');
    expect(waits(29.9)).toMatch(/^amber/);
    expect(waits(30, 20)).toBe('red Orders, and since when they wait: 100 (11:35), 101 (11:45).');
    expect(waits(20, 19, 18, 17, 16, 15, 14)).toMatch(/^amber .*104 \(11:49\), \+2\.$/);
    expect(waits()).toBeUndefined();
  });

  it.each([
    [[1_004], 200, 0, 'Numbers, of 200 in the last day: 1004.'],
    [[], 200, 0, undefined],
    [[9, 8], 200, 0.01, undefined],
    [[9, 8, 7, 6, 5, 4, 3], 200, 0.01, 'Numbers, of 200 in the last day: 9, 8, 7, 6, 5, +2.'],
    [[9], 10, 1, undefined],
  ])(
    'is a number of an order that stays missing: %j of %i beside a usual share of %f',
    (missing, codes, usualShare, told) => {
      const { up, look, now } = rig();
      now.codes = { missing, codes, usualShare };
      look(9_000);
      expect(up.get('orders.code-missing')).toBe(told);
    },
  );

  it('is a field of orders or products that is new, or sent no more, by its name', async () => {
    const { up, look, now, clock } = rig();
    now.fields = {
      orders: { added: ['items[].taxes'], gone: ['deliveryTime', 'items[].product.name'] },
      products: { added: ['children[].origin'], gone: ['brand'] },
    };
    look(9_000);
    expect(up.get('orders.fields')).toBe(
      'New fields: items[].taxes. Missing fields: deliveryTime, items[].product.name. ' +
        'New fields of products: children[].origin. Missing fields of products: brand.',
    );
    now.fields = { orders: NO_NEWS, products: NO_NEWS };
    await clock.advance(61 * MINUTE_MS);
    expect(look(9_000)).toEqual([]);
  });

  it('is a receiver of alarms that does not take them, with why', () => {
    const { look, up, now } = rig();
    now.untold = ['The alarm was not taken: pager.test answered 500.'];
    expect(look(9_000)).toEqual(['alarms.untold']);
    expect(up.get('alarms.untold')).toBe('The alarm was not taken: pager.test answered 500.');
    now.untold = [];
    expect(look(9_000)).toEqual([]);
  });

  it('is what the platform does not permit, and callbacks that are refused or unreadable', () => {
    const { look, up, now } = rig();
    now.forbidden = [{ endpoint: 'webhook.put', message: 'No rights.' }];
    now.callbacks = { refused: 'They carry no secret.', unreadable: 'It has no id.' };
    look(9_000);
    expect(Object.fromEntries(up)).toEqual({
      'platform.forbidden': 'Rejected calls: webhook.put (403: No rights.).',
      'webhook.refused': 'They carry no secret.',
      'webhook.unreadable': 'It has no id.',
    });
    Object.assign(now, { forbidden: [], callbacks: { refused: null, unreadable: null } });
    expect(look(9_000)).toEqual([]);
  });

  it('is each fact that can be read beside one that cannot', () => {
    const { look, up, now } = rig();
    Object.defineProperty(now, 'stray', {
      get() {
        throw new Error('The disk does not answer.');
      },
    });
    now.untold = ['The alarm was not taken.'];
    expect(() => look(10)).toThrow('The disk does not answer.');
    expect([...up.keys()]).toEqual(['storage.full', 'alarms.untold']);
  });

  it('is a key that is wrong again and again', async () => {
    const { look, up, wrongKeys, clock } = rig();
    for (let i = 0; i < 9; i++) wrongKeys.note('192.168.1.7');
    expect(look(9_000)).toEqual([]);
    wrongKeys.note('192.168.1.8');
    expect(look(9_000)).toEqual(['local.wrong-key']);
    expect(up.get('local.wrong-key')).toBe('Wrong keys in the last hour: 10, the last from 192.168.1.8.');
    await clock.advance(61 * MINUTE_MS);
    expect(look(9_000)).toEqual([]);
  });

  it('is an order of no branch, with what it names as its store', () => {
    const { up, look, now } = rig();
    now.stray = [
      { orderId: 'a', code: 7, store: null },
      { orderId: 'b', code: null, store: 'B9' },
    ];
    look(9_000);
    expect(up.get('orders.unassigned')).toBe('Orders and stores: 7 (-), b (B9).');
    now.stray = [];
    expect(look(9_000)).toEqual([]);
  });

  it.each([
    [1, 100, 0, false],
    [2, 100, 0, true],
    [1, 20, 0, true],
    [5, 100, 0.02, false],
    [7, 100, 0.02, true],
    [0, 0, 0, false],
  ])(
    'is %i of a day of %i orders whose sums do not hold beside a usual share of %f: %j',
    (count, orders, usualShare, isTold) => {
      const { up, look, now } = rig();
      now.sums = {
        orders,
        usualShare,
        odd: Array.from({ length: count }, (_, i) => ({ orderId: `o${i}`, code: i })),
      };
      look(9_000);
      expect(up.has('orders.sums')).toBe(isTold);
    },
  );

  it('is what is for sale without an id, where the shop gives ids, and an order of such a thing', async () => {
    const { up, now, facts, clock } = rig();
    const branch = (externalId: string, unmapped: number, isMapping: boolean) => ({
      branch: { subsidiaryId: null, externalId },
      shown: 100,
      unmapped,
      isMapping,
    });
    const item = { orderId: 'o1', code: 1042, productName: 'Torta' };
    Object.assign(now, { mappings: [branch('B2', 80, false)], items: [item] });
    facts.run();
    expect([...up.keys()]).toEqual([]);
    now.mappings = [branch('B1', 37, true), branch('B2', 80, false), branch('B3', 0, true)];
    await clock.advance(5 * MINUTE_MS);
    facts.run();
    expect(Object.fromEntries(up)).toEqual({
      'catalog.unmapped': 'Products on sale without a POS ID, by branch: B1 (37).',
      'catalog.unmapped-ordered': 'Orders and products: 1042 (Torta).',
    });
    now.mappings = [branch('B1', 0, true)];
    now.items = [];
    await clock.advance(5 * MINUTE_MS);
    facts.run();
    expect([...up.keys()]).toEqual([]);
  });

  it('is a platform that asks to wait again and again though the limits were kept', async () => {
    const { look, up, limited, clock } = rig();
    for (let i = 0; i < 3; i++) limited.note('order.all');
    expect(look(9_000)).toEqual([]);
    await clock.advance(10 * MINUTE_MS);
    limited.note('product.list');
    expect(look(9_000)).toEqual(['platform.limits-shared']);
    expect(up.get('platform.limits-shared')).toContain(
      'asked tillsync 4 times to wait, last with product.list,',
    );
    await clock.advance(61 * MINUTE_MS);
    expect(look(9_000)).toEqual([]);
  });
});

describe('sending that fails while orders come', () => {
  const STEP_MS = 5_000;
  const at = (ms: number) => new Date(ms).toISOString();
  interface Story {
    code?: string;
    state?: FreshnessState;
    /** Times in seconds of good polls, failed polls, failed tries and successful tries. */
    polls: number[];
    badPolls?: number[];
    tries: number[];
    taken?: number[];
  }
  /** Returns after how many seconds the fault is reported; undefined if it is not within 15 minutes. */
  function sureAfter({ code = 'platform-failed', state = 'failing', ...story }: Story): number | undefined {
    const watch = new PushMonitor(0);
    const beginMs = 60 * MINUTE_MS;
    let poll: Freshness = { ...FLOW, subject: 'orders.poll', lastOkAt: at(beginMs - 1) };
    let push: Freshness = { ...FLOW, subject: 'outbox.push', lastOkAt: at(beginMs - 1) };
    for (let ms = 0; ms < 15 * MINUTE_MS; ms += STEP_MS) {
      const now = at(beginMs + ms);
      const isNow = (seconds: number[] = []) => seconds.includes(ms / 1_000);
      if (isNow(story.polls)) poll = { ...poll, state: 'ok', lastOkAt: now };
      if (isNow(story.badPolls)) poll = { ...poll, state: 'failing' };
      if (isNow(story.taken)) push = { ...FLOW, subject: 'outbox.push', lastOkAt: now };
      if (isNow(story.tries)) {
        const { since = now, tries = 0 } = push.failure ?? {};
        push = { ...push, state, lastTryAt: now, message: 'why', failure: { code, since, tries: tries + 1 } };
      }
      const reason = watch.judge([poll, push], beginMs + ms);
      if (reason) return ms / 1_000;
      if (push.state === 'ok') expect(reason).toBeNull();
      else expect(reason).toBeUndefined();
    }
    return undefined;
  }
  const FLOW = { lastOkAt: null, lastTryAt: null, state: 'ok', message: '' } as const;
  const polls = [60, 180, 300, 420, 540, 660, 780];
  /** Times in seconds of tries to send: every 20 seconds once a poll has succeeded. */
  const tries = [0, 5, 15, 35, ...Array.from({ length: 40 }, (_, i) => 70 + i * 20)];
  /** Times in seconds of tries to send, with the longer pauses after a refusal by the platform. */
  const seldom = [0, 5, 15, 35, 75, 155, 215, 275, 335];

  const stories: [what: string, story: Story, seconds: number | undefined][] = [
    ['with a fault, try after try', { polls, tries }, 225],
    ['with refusals of whole calls', { code: 'platform-refused', polls, tries: seldom }, 225],
    ['without an answer', { code: 'ECONNRESET', polls, tries }, 225],
    ['by the second of two good polls', { polls: [110, 235], tries }, 235],
    ['beside a poll that failed, counted from the next good one', { polls, badPolls: [120], tries }, 400],
    ['with an end of the trouble', { polls, tries: seldom.slice(0, 6), taken: [220] }, undefined],
    [
      'every second time',
      { polls, tries: [0, 60, 120, 180, 240, 300], taken: [30, 90, 150, 210, 270, 330] },
      undefined,
    ],
    ['with a last try that is minutes old', { polls, tries: [0, 5, 15, 35, 75] }, undefined],
    ['while no poll works', { polls: [], badPolls: [60], tries }, undefined],
    ['because the platform asks to wait', { code: 'rate-limited', polls, tries }, undefined],
    ['because the token is blocked', { state: 'blocked', code: 'blocked', polls, tries }, undefined],
    ['because the token lacks a right', { code: 'forbidden', polls, tries }, undefined],
    [
      'because the tokens are refused',
      { state: 'locked-out', code: 'auth-required', polls, tries },
      undefined,
    ],
    ['because the disk is full', { code: 'storage-full', polls, tries }, undefined],
    ['over the link of a branch', { code: 'link-down', polls, tries }, undefined],
  ];
  for (const [what, story, seconds] of stories)
    it(what, () => {
      expect(sureAfter(story)).toBe(seconds);
    });
});
