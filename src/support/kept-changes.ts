import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { configuredBranches } from '../app/read-only-services.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch, isHub } from '../config/roles.ts';
import type { Clock } from '../core/time.ts';
import { lookInto } from '../db/sqlite.ts';
import { type ChangeKind, readChange } from '../outbox/intake/change.ts';
import { oneRowEach } from '../outbox/intake/same-article.ts';
import { Stores } from '../outbox/sending/repositories.ts';

interface KeptChange {
  value: Record<string, unknown>;
}

/**
 * Leaves one row of each article in a file of a backup's changes, because `push` refuses several: what an inbox held
 * and what the outbox got later are hand-overs one after the other, of which the newest value of each field is true. The
 * articles are those of the mirror in the file `mirror`, by which `push` will read the file.
 */
export function keepNewest(
  { file, kind, mirror }: { file: string; kind: ChangeKind; mirror: string },
  { config, clock }: { config: Config; clock: Clock },
): void {
  if (!existsSync(file)) return;
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  if (lines.length < 2) return;
  const given = lines.map((line): KeptChange => ({ value: JSON.parse(line) }));
  const kept = lookInto(mirror, (db) => {
    const { intake } = new Stores(db, {
      clock,
      areApart: isHub(config),
      branches: configuredBranches(config),
      ownName: isBranch(config) ? config.link.branch : undefined,
    });
    let rows = given;
    // A refused row has one reason at a time, and a product as many as it has fields.
    for (let found = true; found; ) {
      const items = rows.map(({ value }, index) => ({ index, line: null, ...readChange(kind, value) }));
      const placed = intake.articlesOf(items);
      const faults = new Set(
        oneRowEach(placed, { kind, rows: undefined, names: 'command' }).flatMap((row) =>
          'fault' in row && row.fault.code === 'same-article' ? [row.fault] : [],
        ),
      );
      const next: (KeptChange | undefined)[] = [...rows];
      for (const { column, rows: among = [] } of faults) {
        if (column === null) joinCounts(next, among);
        else leaveToLast(next, among, { kind, column });
      }
      found = faults.size > 0;
      rows = next.filter((row) => row !== undefined);
    }
    return rows;
  });
  writeFileSync(file, kept.map(({ value }) => `${JSON.stringify(value)}\n`).join(''), { mode: 0o600 });
}

/** Leaves the newest count of one stock: the last one handed over, unless another one says that it was made later. */
function joinCounts(rows: (KeptChange | undefined)[], among: readonly number[]): void {
  const counts = among.flatMap((i) => rows[i] ?? []);
  const timeOf = ({ value }: KeptChange) => Date.parse(String(value.counted_at));
  const newest = counts.reduce((best, each) => (timeOf(best) > timeOf(each) ? best : each));
  // The visibility is no count: the last one handed over is true.
  const shown = counts.findLast(({ value }) => value.show !== undefined);
  for (const i of among) rows[i] = undefined;
  const show = shown && { show: shown.value.show };
  rows[among.at(-1) ?? 0] = { value: { ...newest.value, ...show } };
}

/** Takes a field of a product from all rows but the last, and the rows that say nothing else. */
function leaveToLast(
  rows: (KeptChange | undefined)[],
  among: readonly number[],
  { kind, column }: { kind: ChangeKind; column: string },
): void {
  for (const i of among.slice(0, -1)) {
    const row = rows[i];
    if (row === undefined) continue;
    const { [column]: _, ...value } = row.value;
    const reading = readChange(kind, value);
    const isNothing = 'fault' in reading && reading.fault.code === 'nothing-to-change';
    rows[i] = isNothing ? undefined : { value };
  }
}
