import { formatDuration, isoUtc } from '../../core/time.ts';
import { timeReader } from '../../orders/merging/field-values.ts';
import type { OutboxChange, SubmittedChange } from './change.ts';

/** Maximum time by which a POS's clock may be ahead of this machine's. Such a count counts as made when it was sent. */
const AHEAD_MAX_MS = 2 * 60_000;
/** Maximum age of a count when it is sent. An older one is a file of another day. */
const AGE_MAX_MS = 24 * 3_600_000;

/**
 * Reads when a count was made, and returns the item with the time as ISO 8601 UTC, at most the time at which the item
 * was handed over. Returns the item as faulty if its time is no time, ahead of that, or older than a day. `timezone`
 * is the zone of times that name none.
 */
export function withCountTime(
  item: SubmittedChange,
  { nowMs, timezone }: { nowMs: number; timezone: string | undefined },
): SubmittedChange {
  const { countedAt: said, handedAt } = item;
  if (said == null || 'fault' in item) return item;
  const fault = (why: string): SubmittedChange => {
    // The rest has neither the change nor the time, because a faulty item is not read any further.
    const { change, countedAt: _, ...rest } = item;
    const message = `counted_at ${JSON.stringify(said)} ${why}`;
    const value = { ...change, counted_at: said };
    return {
      ...rest,
      reference: rest.reference ?? null,
      value,
      fault: { code: 'bad-value', column: 'counted_at', message },
    };
  };
  const countedAt = timeReader(timezone)(said);
  if (countedAt === undefined) return fault('is no time. Write it as 2026-11-28T09:55:00-03:00.');
  const handedMs = Math.min(nowMs, Date.parse(handedAt ?? '') || nowMs);
  const countedMs = Date.parse(countedAt);
  const zone = timezone === undefined ? '' : ` A time without a zone is read in ${timezone}.`;
  if (countedMs > handedMs + AHEAD_MAX_MS) {
    return fault(`is ahead of this machine's clock, which says ${isoUtc(handedMs)}.${zone}`);
  }
  if (countedMs < handedMs - AGE_MAX_MS) {
    return fault(`is more than ${formatDuration(AGE_MAX_MS)} old. Count again.${zone}`);
  }
  return { ...item, countedAt: countedMs > handedMs ? isoUtc(handedMs) : countedAt };
}

/** When a value was counted: the time that the POS gave, else the time at which it was handed over. */
export function countTime({ countedAt, handedAt }: { countedAt: string | null; handedAt: string }): string {
  return countedAt ?? handedAt;
}

/** Returns a sentence that says why a count is not sent: another one was made later. */
export function countedLater(change: CountTimes, by: CountTimes & { changeId: number }): string {
  return `Not sent: counted at ${countTime(change)}, and change ${by.changeId} was counted at ${countTime(by)}.`;
}

type CountTimes = Pick<OutboxChange, 'countedAt' | 'handedAt'>;
