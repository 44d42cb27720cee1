import type Database from 'better-sqlite3';
import { FINDING_SENTENCES } from '../../domain/health/finding.ts';
import type { Verdict } from '../../domain/health/verdict.ts';
import { type Clock, isoUtc } from '../../domain/time/clock.ts';
import { type Check, type Outcome, skipped, warned, well } from './check.ts';
import { outcomeOfFindings } from './from-findings.ts';
import { since } from './since.ts';

const DAY_MS = 86_400_000;
/** The alarm of the daemon, too, waits for so many in a row. */
const SILENT_IN_A_ROW = 3;

/** How the orders of the last day were first heard of. */
export interface FirstSights {
  webhook: number;
  poll: number;
  /** ISO 8601 UTC; null: none ever. */
  lastWebhookAt: string | null;
  /** Fresh orders that polls brought and no callback announced, since the last callback. */
  unannounced: number;
}

/**
 * `lastOkAt`: of the freshness of callbacks. Counts order_events by what brought them. An order that was minutes old when a poll found it may be one of a time
 * when nothing ran, so only fresh ones count as not announced.
 */
export function readFirstSights(db: Database.Database, nowMs: number, lastOkAt: string | null): FirstSights {
  const from = isoUtc(nowMs - DAY_MS);
  const counts = db
    .prepare<[string], { webhook: number; poll: number }>(
      `SELECT count(*) FILTER (WHERE source = 'webhook') AS webhook, count(*) FILTER (WHERE source = 'poll') AS poll
       FROM order_events WHERE observed_at >= ? AND previous_status IS NULL`,
    )
    .get(from);
  const lastEventAt = db
    .prepare<[], string | null>(
      `SELECT observed_at FROM order_events WHERE source = 'webhook' ORDER BY seq DESC LIMIT 1`,
    )
    .pluck()
    .get();
  // A callback that says what a poll had found already makes no event.
  const lastWebhookAt = [lastEventAt ?? '', lastOkAt ?? ''].sort().at(-1) || null;
  const unannounced = db
    .prepare<[string, string], number>(
      `SELECT count(*) FROM order_events AS e JOIN orders AS o USING (order_id)
       WHERE e.source = 'poll' AND e.observed_at >= ? AND e.observed_at > ? AND e.previous_status IS NULL
         AND julianday(e.observed_at) - julianday(o.created_at) < 10.0 / 1440`,
    )
    .pluck()
    .get(from, lastWebhookAt ?? '');
  return {
    ...(counts ?? { webhook: 0, poll: 0 }),
    lastWebhookAt,
    unannounced: unannounced ?? 0,
  };
}

export interface ArrivingCheckOptions {
  verdict: Verdict;
  sights: () => FirstSights;
  clock: Clock;
}

/** Whether callbacks really come, against what polls saw. */
export function arrivingCheck({ verdict, sights, clock }: ArrivingCheckOptions): Check {
  return { id: 'webhook.arriving', run: () => arrivingOutcome(verdict, sights(), clock) };
}

function arrivingOutcome(verdict: Verdict, seen: FirstSights, clock: Clock): Outcome {
  const { webhook, poll, lastWebhookAt, unannounced } = seen;
  const facts = { ...seen };
  const codes = ['webhook.refused', 'webhook.silent', 'webhook.unreadable', 'orders.webhook'] as const;
  const last = lastWebhookAt === null ? 'None ever came' : `The last came ${since(lastWebhookAt, clock)}`;
  const counted = `${last}; of the new orders of the last day callbacks announced ${webhook}, and polls found ${poll} first.`;
  const found = outcomeOfFindings(verdict, codes, facts, ['webhook.silent']);
  if (found) return { ...found, message: `${found.message} ${counted}` };
  if (unannounced >= SILENT_IN_A_ROW) {
    const { message, remedy } = FINDING_SENTENCES['webhook.silent'];
    return warned(`${message} ${counted}`, remedy, facts);
  }
  if (lastWebhookAt === null && poll === 0)
    return skipped('No order has come yet that a callback could announce.', null, facts);
  return well(counted, facts);
}
