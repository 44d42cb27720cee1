import type Database from 'better-sqlite3';
import type { ChangeBody } from '../../domain/change/change.ts';
import { hasSharedFields, withoutNewer } from '../../domain/change/coalesce.ts';
import { bodyOf, LINE_COLUMNS, type LineRow, type OutboxState, versioned } from './outbox-row.ts';

/** Where a change belongs by what the mirror knows now. */
type Place = Pick<LineRow, 'target' | 'conflictKey'>;
type NewerRow = LineRow & { state: OutboxState };

/** What is left of a change: its fields of which nobody has said anything newer, or else who did. */
export type Remainder = { body: ChangeBody } | { overruledBy: number };

/** What was handed over for the same thing since, whatever became of it. Transactions are the caller's. */
export class NewerWords {
  readonly #newer: Database.Statement<[Record<string, unknown>], NewerRow>;

  constructor(db: Database.Database) {
    // In parts, each of which an index answers: what is settled stays for a month.
    const part = (where: string) => `
      SELECT ${LINE_COLUMNS}, state FROM outbox WHERE kind = @kind AND version > @after AND ${where}`;
    const parts = [
      "target = @target AND state = 'pending' AND held_guard IS NULL",
      "target = @target AND state = 'pending' AND held_guard IS NOT NULL",
      "target = @target AND state = 'rejected'",
      "conflict_key = @conflictKey AND state IN ('sending', 'done')",
      // Other skus of the product; of a stock they have no say.
      `conflict_key = @conflictKey AND target <> @target AND @isShared AND kind = 'product'
        AND state IN ('pending', 'rejected')`,
    ];
    this.#newer = db.prepare(`${parts.map(part).join(' UNION ALL ')} ORDER BY version`);
  }

  /** Each field of `row` stays whose newest word it is; a stock's show takes the newest quantity with it. */
  restOf(row: LineRow, place: Place): Remainder {
    const own = versioned(row);
    const after = Math.min(row.version, ...Object.values(own.versions));
    const isShared = Number(hasSharedFields(row.kind, own.body));
    const { kind, changeId } = row;
    let rest = own.body;
    let last: NewerRow | undefined;
    for (const newer of this.#newer.all({ kind, after, isShared, ...place })) {
      if (newer.changeId === changeId) continue;
      const scope = newer.target === place.target ? 'all' : 'shared';
      const left = withoutNewer({ ...own, body: rest }, versioned(newer), scope);
      if (left === undefined) return { overruledBy: newer.changeId };
      rest = left;
      last = newer;
    }
    // Whatever is newer for a stock has a quantity.
    if (kind === 'product' || 'qty' in rest || last === undefined) return { body: rest };
    // A guard rail holds the quantity, and the show that came with the older one must not let it go.
    if (last.heldGuard !== null) return { overruledBy: last.changeId };
    return { body: { ...rest, qty: (bodyOf(last) as { qty: number }).qty } as ChangeBody };
  }
}
