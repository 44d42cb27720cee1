import type Database from 'better-sqlite3';
import { gauge, type MetricFamily } from '../../local/metrics/metric-family.ts';
import { quarantineBySource, quarantineMark } from '../../store/mirror/metric-queries.ts';

/** Counts the quarantine by source only when something came or went: its entries may be many and large. */
export class QuarantineCounts {
  #mark: string | undefined;
  #bySource: readonly { source: string; entries: number }[] = [];

  family(db: Database.Database): MetricFamily {
    const mark = quarantineMark(db);
    if (mark !== this.#mark) {
      this.#bySource = quarantineBySource(db);
      this.#mark = mark;
    }
    return gauge(
      'tillsync_quarantine_entries_by_source',
      'Entries in quarantine, by where they came from.',
      this.#bySource.map(({ source, entries }) => ({ labels: { source }, value: entries })),
    );
  }
}
