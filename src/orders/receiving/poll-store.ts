import type { AlarmKey } from '../../core/alarm.ts';
import { mark, setMark } from '../../db/marks.ts';
import type { MirrorFile } from '../reading/mirror-file.ts';

const ASKED = 'orders.asked-ms';
const WIDE_ASKED = 'orders.wide-asked-ms';
const HUB_STALE_AFTER = 'hub.stale-after-ms';

/** How far back a poll asks: 0 over the running day, 1 over the look-back, 2 to the oldest open order. */
export type PollReach = 0 | 1 | 2;
/** Alarms that complete polls raise and end. */
export type PollAlarm = Extract<AlarmKey, 'orders.unreadable' | 'orders.more-pages' | 'orders.lists'>;

/** Stores when orders were polled, and how far back the polls reached that raised alarms. */
export class PollStore {
  readonly #file: Pick<MirrorFile, 'read' | 'write'>;
  readonly #health: { lastOkMs(subject: 'orders.poll'): number | null };

  constructor(
    file: Pick<MirrorFile, 'read' | 'write'>,
    health: { lastOkMs(subject: 'orders.poll'): number | null },
  ) {
    this.#file = file;
    this.#health = health;
  }

  /** Returns when the last complete poll finished, on this machine's clock; null if there was none. */
  lastOkMs(): number | null {
    return this.#health.lastOkMs('orders.poll');
  }

  /** Returns when the last complete poll was sent, on the platform's clock; null if there was none. */
  lastAskedMs(): number | null {
    // A branch that becomes a store of its own has no such mark, only its hub's last poll by this machine's clock.
    return this.#file.read((db) => mark(db, ASKED)) ?? this.lastOkMs();
  }

  /** Returns when the last poll back to the oldest open order was sent, on the platform's clock; null if never. */
  lastWideAskedMs(): number | null {
    return this.#file.read((db) => mark(db, WIDE_ASKED)) ?? null;
  }

  /** Returns the reach that a poll needs to end the alarm; 0 if any poll may. */
  raisedReach(key: PollAlarm): number {
    return this.#file.read((db) => mark(db, `${key}-reach`)) ?? 0;
  }

  /**
   * Records a complete poll durably. `askedMs` is its time on the platform's clock. `raised` has the new reaches of
   * alarms, 0 for an ended one.
   */
  note(askedMs: number, wide: boolean, raised: ReadonlyMap<PollAlarm, PollReach> = new Map()): Promise<void> {
    return this.#file.write((db) => {
      for (const name of [ASKED, ...(wide ? [WIDE_ASKED] : [])]) setMark(db, name, Math.round(askedMs));
      for (const [key, reach] of raised) setMark(db, `${key}-reach`, reach);
    });
  }

  /**
   * At a branch, returns the time without a complete poll after which orders are treated as stale; undefined if the hub
   * sent no such time.
   */
  hubStaleAfterMs(): number | undefined {
    return this.#file.read((db) => mark(db, HUB_STALE_AFTER));
  }

  async noteHubStaleAfter(ms: number): Promise<void> {
    if (this.hubStaleAfterMs() !== ms) await this.#file.write((db) => setMark(db, HUB_STALE_AFTER, ms));
  }
}
