import { expect, it } from 'vitest';
import type { Freshness } from '../../../src/core/alarm.ts';
import type { Facts } from '../../../src/health/facts.ts';
import { PushMonitor } from '../../../src/health/health-checks.ts';
import {
  type AlarmMemory,
  afterSending,
  NOTHING_SENT,
  NotificationPolicy,
} from '../../../src/health/notification-policy.ts';
import { StandingNow } from '../../../src/health/notifier.ts';
import { standing } from '../../../src/health/verdict.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { SEED } from '../../support/seed.ts';

/*
 * Tests which messages ordinary faults cause in months of a store, by its facts alone, without its files and its
 * platform.
 */

/** `TILLSYNC_CALM_MONTHS` is the number of months; a hundred take about two minutes of a core. */
const MONTHS = Number(process.env.TILLSYNC_CALM_MONTHS ?? 4);
const MINUTE_MS = 60_000;
const MONTH_MS = 30 * 24 * 60 * MINUTE_MS;
const LOOK_EVERY_MS = 15_000;
const POLL_EVERY_MS = 2 * MINUTE_MS;
/** A POS hands a change over this often. */
const CHANGE_EVERY_MS = 5 * MINUTE_MS;
const BEGIN_MS = Date.UTC(2026, 0, 1);
const RULES = { level: 'amber', settleMs: MINUTE_MS, repeatMs: 0, dailyMax: 20 } as const;

interface Trouble {
  what: 'line' | 'platform' | 'restart' | 'night';
  endMs: number;
  /** The failure of a call. */
  code: string;
}

/** Draws a fault of the kinds in test/slow/simulation/calm.ts. */
function troubleAt(nowMs: number, random: { next(): number }, cutMinutes: number): Trouble {
  const one = <T>(all: readonly T[]) => all[Math.floor(random.next() * all.length)] as T;
  const minutes = (from: number, to: number) => nowMs + (from + (to - from) * random.next()) * MINUTE_MS;
  const chance = random.next();
  if (chance < 0.4)
    return {
      what: 'line',
      endMs: minutes(0.2, cutMinutes),
      code: one(['ENETUNREACH', 'EAI_AGAIN', 'ECONNRESET', 'UND_ERR_CONNECT_TIMEOUT']),
    };
  if (chance < 0.8)
    return {
      what: 'platform',
      endMs: minutes(0.2, 5),
      code: one(['platform-failed', 'platform-garbled', 'ECONNRESET', 'platform-unreachable']),
    };
  return chance < 0.95
    ? { what: 'restart', endMs: minutes(0.1, 20), code: '' }
    : { what: 'night', endMs: minutes(300, 600), code: '' };
}

/** Messages of a month, such as `raised orders.stale`. */
function monthOf(seed: number, cutMinutes = 6): string[] {
  const random = seededRandom(seed);
  const told: string[] = [];
  let memory: AlarmMemory = NOTHING_SENT;
  let judge = new NotificationPolicy(RULES);
  let nowMs = BEGIN_MS;
  let trouble: Trouble | undefined;
  let nextMs = nowMs + 60 * MINUTE_MS;
  let pollDueMs = nowMs;
  let isLineUp = true;
  let poll: Freshness = {
    subject: 'orders.poll',
    lastOkAt: null,
    lastTryAt: null,
    state: 'unknown',
    message: '',
  };
  let push: Freshness = { ...poll, subject: 'outbox.push' };
  let oldestPendingAt: string | null = null;
  let changeDueMs = nowMs;
  let tryDueMs = Number.POSITIVE_INFINITY;
  let pushMonitor = new PushMonitor(nowMs);
  let stuck: { key: string; message: string; raisedAt: string } | undefined;
  const iso = () => new Date(nowMs).toISOString();
  const clock = { nowMs: () => nowMs, monotonicMs: () => nowMs - BEGIN_MS } as never;
  const factsNow = (): Facts => ({
    ...{
      nowMs,
      isSetUp: true,
      running: true,
      freshness: [poll, push],
      alarms: stuck ? [stuck] : [],
      outbox: { pending: oldestPendingAt === null ? 0 : 1, held: 0, rejected: 0, oldestPendingAt },
      quarantine: 0,
      isLineUp,
    },
    tokens: { state: 'ok', refreshExpiresInMs: 20 * 86_400_000 },
    ordersStaleAfterMs: 10 * MINUTE_MS,
  });
  let now = new StandingNow(() => standing(factsNow()), clock);
  const tried = (flow: Freshness): Freshness => {
    const isDown = trouble?.what === 'line' || (trouble?.what === 'platform' && random.next() < 0.7);
    const lastTryAt = iso();
    if (!isDown) return { ...flow, lastOkAt: iso(), lastTryAt, state: 'ok', message: '', failure: undefined };
    const { code } = trouble as Trouble;
    const { since = iso(), tries = 0 } = flow.failure?.code === code ? flow.failure : {};
    return {
      ...flow,
      lastTryAt,
      state: 'failing',
      message: code,
      failure: { code, since, tries: tries + 1 },
    };
  };
  /** As the sender does it: after five seconds, ten, twenty, at last every five minutes. */
  const tryPush = () => {
    push = tried(push);
    const { tries = 0 } = push.failure ?? {};
    if (tries === 0) oldestPendingAt = null;
    const pauseMs = Math.min(5_000 * 2 ** (tries - 1), 5 * MINUTE_MS) * (0.5 + random.next() / 2);
    tryDueMs = tries === 0 ? Number.POSITIVE_INFINITY : nowMs + pauseMs;
  };
  const lookAtPush = () => {
    const reason = pushMonitor.judge([poll, push], nowMs);
    if (reason === null) stuck = undefined;
    else if (reason) stuck ??= { key: 'outbox.stuck', message: reason, raisedAt: iso() };
  };
  const tryPoll = () => {
    poll = tried(poll);
    isLineUp = trouble?.what !== 'line';
    pollDueMs = nowMs + POLL_EVERY_MS;
  };
  for (; nowMs < BEGIN_MS + MONTH_MS; nowMs += LOOK_EVERY_MS) {
    if (trouble && nowMs >= trouble.endMs) {
      if (trouble.what === 'restart') {
        judge = new NotificationPolicy(RULES);
        pushMonitor = new PushMonitor(nowMs);
        now = new StandingNow(() => standing(factsNow()), clock);
      }
      trouble = undefined;
      nextMs = nowMs + (60 + 240 * random.next()) * MINUTE_MS;
    }
    if (!trouble && nowMs >= nextMs) trouble = troubleAt(nowMs, random, cutMinutes);
    if (trouble?.what === 'restart' || trouble?.what === 'night') continue;
    if (nowMs >= pollDueMs) tryPoll();
    if (nowMs >= changeDueMs) {
      changeDueMs = nowMs + 2 * CHANGE_EVERY_MS * random.next();
      if (oldestPendingAt === null) tryDueMs = nowMs;
      oldestPendingAt ??= iso();
    }
    if (nowMs >= tryDueMs) tryPush();
    lookAtPush();
    const at = { nowMs, monotonicMs: nowMs - BEGIN_MS, day: iso().slice(0, 10) };
    judge.observe(now.read(), memory, at);
    for (let news = judge.next(memory, at); news; news = judge.next(memory, at)) {
      told.push(`${news.state} ${news.key} at ${iso()}, ${news.detail}`);
      memory = afterSending(memory, news, at);
    }
  }
  return told;
}

it('months of ordinary troubles tell at most one alarm in a hundred', () => {
  const told = Array.from({ length: MONTHS }, (_, i) => monthOf(SEED + i)).flat();
  console.log(`${MONTHS} months: ${JSON.stringify(told)}`);
  expect(told.filter((each) => each.startsWith('raised')).length).toBeLessThanOrEqual(
    Math.floor(MONTHS / 100),
  );
});

it('a month in which the line is cut for up to forty minutes tells of it', () => {
  expect(monthOf(SEED, 40).filter((each) => each.startsWith('raised orders.stale')).length).toBeGreaterThan(
    10,
  );
});
