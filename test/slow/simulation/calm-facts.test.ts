import { expect, it } from 'vitest';
import type { Freshness } from '../../../src/core/alarm.ts';
import type { Facts } from '../../../src/health/facts.ts';
import {
  type AlarmMemory,
  afterSending,
  NOTHING_SENT,
  NotificationPolicy,
} from '../../../src/health/notification-policy.ts';
import { CurrentAssessment } from '../../../src/health/notifier.ts';
import { PushMonitor } from '../../../src/health/push-monitor.ts';
import { assess } from '../../../src/health/verdict.ts';
import { seededRandom } from '../../support/fake-clock.ts';
import { SEED } from '../../support/seed.ts';

/*
 * Tests which messages ordinary faults cause in months of a store. It simulates only the facts that the alarms judge,
 * without files and without a platform.
 */

/** Number of simulated months (`TILLSYNC_CALM_MONTHS`); a hundred months take about four minutes of CPU time. */
const MONTHS = Number(process.env.TILLSYNC_CALM_MONTHS ?? 4);
const MINUTE_MS = 60_000;
const MONTH_MS = 30 * 24 * 60 * MINUTE_MS;
const LOOK_EVERY_MS = 15_000;
const POLL_EVERY_MS = 2 * MINUTE_MS;
/** Mean time between two changes that the POS hands over. */
const CHANGE_EVERY_MS = 5 * MINUTE_MS;
/** A call without an answer ends after this time. */
const TIMEOUT_MS = { poll: 3 * MINUTE_MS, push: MINUTE_MS / 2 };
const TIMED_OUT = 'platform-unreachable';
const BEGIN_MS = Date.UTC(2026, 0, 1);
const RULES = { level: 'amber', settleMs: MINUTE_MS, repeatMs: 0, dailyMax: 20 } as const;

interface Call {
  endMs: number;
  /** Error code; left out if the call succeeds. */
  code?: string | undefined;
}

interface Trouble {
  what: 'line' | 'platform' | 'restart' | 'night';
  endMs: number;
  /** Error code of the calls that fail meanwhile. */
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
      code: one(['ENETUNREACH', 'EAI_AGAIN', 'ECONNRESET', 'UND_ERR_CONNECT_TIMEOUT', TIMED_OUT]),
    };
  if (chance < 0.8)
    return {
      what: 'platform',
      endMs: minutes(0.2, 5),
      code: one(['platform-failed', 'platform-garbled', 'ECONNRESET', TIMED_OUT]),
    };
  return chance < 0.95
    ? { what: 'restart', endMs: minutes(0.1, 20), code: '' }
    : { what: 'night', endMs: minutes(300, 600), code: '' };
}

/** Simulates a month and returns its messages, such as `raised orders.stale at 2026-01-09T…`. */
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
  let jitter = 1;
  let pushCall: Call | undefined;
  let pollCall: Call | undefined;
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
  let now = new CurrentAssessment(() => assess(factsNow()), clock);
  const called = (flow: 'poll' | 'push'): Call => {
    const isDown = trouble?.what === 'line' || (trouble?.what === 'platform' && random.next() < 0.7);
    const code = isDown ? trouble?.code : undefined;
    return { code, endMs: nowMs + (code === TIMED_OUT ? TIMEOUT_MS[flow] : 0) };
  };
  const answered = (flow: Freshness, { code }: Call): Freshness => {
    const lastTryAt = iso();
    if (!code) return { ...flow, lastOkAt: iso(), lastTryAt, state: 'ok', message: '', failure: undefined };
    const { since = iso(), tries = 0 } = flow.failure?.code === code ? flow.failure : {};
    return {
      ...flow,
      lastTryAt,
      state: 'failing',
      message: code,
      failure: { code, since, tries: tries + 1 },
    };
  };
  /**
   * Returns when the sender tries next. The pause doubles from 5 seconds up to 5 minutes. Once a poll has worked since
   * the first failure, the pause is at most 20 seconds or a tenth of the time since that failure, whichever is longer.
   */
  const pushDueMs = (): number => {
    if (oldestPendingAt === null) return Number.POSITIVE_INFINITY;
    const { tries, since } = push.failure ?? { tries: 0, since: '' };
    if (tries === 0) return nowMs;
    const longMs = Math.min(5_000 * 2 ** (tries - 1), 5 * MINUTE_MS) * jitter;
    const failedForMs = nowMs - Date.parse(since);
    const isReached = (poll.lastOkAt ?? '') > since;
    const pauseMs = isReached ? Math.min(longMs, Math.max(20_000 * jitter, failedForMs / 10)) : longMs;
    return Date.parse(push.lastTryAt ?? '') + pauseMs;
  };
  const endPush = (call: Call) => {
    push = answered(push, call);
    if (!call.code) oldestPendingAt = null;
    jitter = 0.5 + random.next() / 2;
    pushCall = undefined;
  };
  const lookAtPush = () => {
    const reason = pushMonitor.judge([poll, push], nowMs);
    if (reason === null) stuck = undefined;
    else if (reason) stuck ??= { key: 'outbox.stuck', message: reason, raisedAt: iso() };
  };
  const endPoll = (call: Call) => {
    poll = answered(poll, call);
    isLineUp = trouble?.what !== 'line';
    pollCall = undefined;
  };
  for (; nowMs < BEGIN_MS + MONTH_MS; nowMs += LOOK_EVERY_MS) {
    if (trouble && nowMs >= trouble.endMs) {
      if (trouble.what === 'restart') {
        judge = new NotificationPolicy(RULES);
        pushMonitor = new PushMonitor(nowMs);
        now = new CurrentAssessment(() => assess(factsNow()), clock);
      }
      trouble = undefined;
      nextMs = nowMs + (60 + 240 * random.next()) * MINUTE_MS;
    }
    if (!trouble && nowMs >= nextMs) trouble = troubleAt(nowMs, random, cutMinutes);
    if (trouble?.what === 'restart' || trouble?.what === 'night') continue;
    if (!pollCall && nowMs >= pollDueMs) {
      pollCall = called('poll');
      pollDueMs = nowMs + POLL_EVERY_MS;
    }
    if (pollCall && nowMs >= pollCall.endMs) endPoll(pollCall);
    if (nowMs >= changeDueMs) {
      changeDueMs = nowMs + 2 * CHANGE_EVERY_MS * random.next();
      oldestPendingAt ??= iso();
    }
    if (nowMs >= pushDueMs()) pushCall ??= called('push');
    if (pushCall && nowMs >= pushCall.endMs) endPush(pushCall);
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
