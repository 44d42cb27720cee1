import type { Freshness, FreshnessSubject } from '../core/alarm.ts';
import { isPushFailing } from './facts.ts';

/** Time for which sending must fail before it is a finding. Most faults of a platform are over by then. */
const PUSH_FAILS_MS = 225_000;

/** Minimum number of successful polls in that time. A single poll may succeed even while most calls fail. */
const POLLS_MEANWHILE = 2;

/** Maximum age of the last failed try. Pauses between tries are shorter, so an older failure says nothing about now. */
const TRIED_WITHIN_MS = 90_000;

/**
 * Decides whether sending fails while polls succeed. After a failed poll, time and polls are counted anew, because the
 * cause is then the connection or the whole platform.
 */
export class PushMonitor {
  #fromMs: number;
  #run: { sinceMs: number; lastPollMs: number; polls: number } | undefined;

  constructor(nowMs: number) {
    this.#fromMs = nowMs;
  }

  /** Returns the reason of the last failed try, null if sending works, or undefined if neither is certain yet. */
  judge(flows: readonly Freshness[], nowMs: number): string | null | undefined {
    const flow = (subject: FreshnessSubject) => flows.find((each) => each.subject === subject);
    const [push, poll] = [flow('outbox.push'), flow('orders.poll')];
    const isPolled = poll?.state === 'ok' || poll?.state === 'degraded';
    if (!push || !isPushFailing(push) || !isPolled) {
      this.#run = undefined;
      this.#fromMs = nowMs;
      return !push || push.state === 'ok' || push.state === 'unknown' ? null : undefined;
    }
    if (this.#run && Date.parse(push.lastOkAt ?? '') > this.#run.sinceMs) this.#run = undefined;
    this.#run ??= {
      sinceMs: Math.max(this.#fromMs, Date.parse(push.failure?.since ?? '')),
      lastPollMs: 0,
      polls: 0,
    };
    const run = this.#run;
    const polledMs = Date.parse(poll.lastOkAt ?? '');
    if (polledMs > Math.max(run.sinceMs, run.lastPollMs)) {
      run.lastPollMs = polledMs;
      run.polls += 1;
    }
    const isTried = nowMs - Date.parse(push.lastTryAt ?? '') <= TRIED_WITHIN_MS;
    const isSure = run.polls >= POLLS_MEANWHILE && isTried && nowMs - run.sinceMs >= PUSH_FAILS_MS;
    return isSure ? push.message : undefined;
  }
}
