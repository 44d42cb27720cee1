import type { Clock } from '../../domain/time/clock.ts';
import { type MetricFamily, plainGauge } from '../../local/metrics/metric-family.ts';
import { COUNTED_MAX, type InboxWaiting } from '../../store/inbox/inbox-rows.ts';

/** It is looked into twice a second; for longer than this only where a POS or the disk does not let it. */
const UNREAD_MS = 10_000;

/** What waits in the inbox, as the last look into it found it. */
export class InboxBacklog {
  #last: (InboxWaiting & { lookedMs: number }) | undefined;

  saw(waiting: InboxWaiting, clock: Pick<Clock, 'monotonicMs'>): void {
    this.#last = { ...waiting, lookedMs: clock.monotonicMs() };
  }

  families(clock: Pick<Clock, 'monotonicMs' | 'nowMs'>): MetricFamily[] {
    return [
      plainGauge(
        'tillsync_inbox_waiting_rows',
        `Rows that wait in inbox.db, as the last look found them; no more than ${COUNTED_MAX} of each table are counted.`,
        this.#last?.rows ?? null,
      ),
      plainGauge(
        'tillsync_inbox_oldest_row_age_seconds',
        'Age of the oldest row that waits in inbox.db; while the file is locked or damaged at least the time since the last look into it; 0: none.',
        this.#last === undefined ? null : this.#ageMs(this.#last, clock) / 1000,
      ),
    ];
  }

  #ageMs(
    { rows, oldest, lookedMs }: InboxWaiting & { lookedMs: number },
    clock: Pick<Clock, 'monotonicMs' | 'nowMs'>,
  ): number {
    const unreadMs = clock.monotonicMs() - lookedMs;
    const ownMs = rows === 0 ? 0 : clock.nowMs() - (Date.parse(oldest ?? '') || clock.nowMs());
    return Math.max(0, ownMs, unreadMs > UNREAD_MS ? unreadMs : 0);
  }
}
