import type { Freshness } from '../core/alarm.ts';
import { mark, setMark } from '../db/marks.ts';
import type { MirrorFile } from './mirror-file.ts';

const ASKED = 'orders.asked-ms';
const WIDE_ASKED = 'orders.wide-asked-ms';
const HUB_STALE_AFTER = 'hub.stale-after-ms';

/** Stores when orders were polled. */
export class PollStore {
  readonly #file: Pick<MirrorFile, 'read' | 'write'>;
  readonly #freshness: () => Freshness[];

  constructor(file: Pick<MirrorFile, 'read' | 'write'>, freshness: () => Freshness[]) {
    this.#file = file;
    this.#freshness = freshness;
  }

  /** Returns when the last complete poll finished, on this machine's clock; null if there was none. */
  lastOkMs(): number | null {
    const iso = this.#freshness().find(({ subject }) => subject === 'orders.poll')?.lastOkAt;
    const ms = iso == null ? Number.NaN : Date.parse(iso);
    return Number.isNaN(ms) ? null : ms;
  }

  /** Returns when the last complete poll was sent, on the platform's clock; null if there was none. */
  lastAskedMs(): number | null {
    // A mirror of an older version has no such mark, only the time on this machine's clock.
    return this.#file.read((db) => mark(db, ASKED)) ?? this.lastOkMs();
  }

  /** Returns when the last poll back to the oldest open order was sent, on the platform's clock; null if never. */
  lastWideAskedMs(): number | null {
    return this.#file.read((db) => mark(db, WIDE_ASKED)) ?? null;
  }

  /** Records a complete poll durably. `askedMs` is its time on the platform's clock. */
  note(askedMs: number, wide: boolean): Promise<void> {
    return this.#file.write((db) => {
      for (const name of [ASKED, ...(wide ? [WIDE_ASKED] : [])]) setMark(db, name, Math.round(askedMs));
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
