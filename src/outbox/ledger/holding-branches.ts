import type Database from 'better-sqlite3';
import type { Branch, BranchDirectory } from '../../catalog/product.ts';
import { isoUtc } from '../../core/time.ts';
import { seen } from '../../db/seen.ts';
import { type Sql, sqlOf } from '../../db/sqlite.ts';
import { IS_OPEN } from '../../orders/merging/order.ts';
import { EVERY_BRANCH, type HoldBackSetting, holdingKeys, storesOf } from './hold-back.ts';

/** If an order arrived at most this long before the POS's first acknowledgement, the POS may not have booked it yet. */
const JUST_CAME_MS = 10 * 60_000;
/** An open order this old counts as booked, if its POS acknowledges orders but never acknowledged this one. */
const BOOKED_WITHIN_MS = 24 * 3_600_000;
const ACKNOWLEDGING = seen('acknowledging-store');
const HOLDING = seen('holding-branch');

/**
 * Keys of branches: `now` are all that must hold back, `on` those that start to, and `off` those that stop. `names` are
 * the new external ids of branches that go on.
 */
interface HoldBackSwitch {
  now: ReadonlySet<string>;
  names: string[];
  on: string[];
  off: string[];
}

/** Returns the stores, as orders name them, whose POS has acknowledged an order. */
export function acknowledgingStores(db: Database.Database): Set<string> {
  return new Set(sqlOf(db).values<string>(`SELECT name FROM ${ACKNOWLEDGING}`));
}

/** Branches that hold back, as stored. The caller opens the transaction. */
export class HoldingBranches {
  readonly #db: Database.Database;
  readonly #sql: Sql;
  readonly #branches: BranchDirectory;
  /** Setting and table sizes at the last check that found nothing to switch. */
  #seen = '';

  constructor(db: Database.Database, branches: BranchDirectory) {
    this.#db = db;
    this.#sql = sqlOf(db);
    this.#branches = branches;
  }

  get isAny(): boolean {
    return this.#sql.value(`SELECT 1 FROM ${HOLDING} LIMIT 1`) !== undefined;
  }

  /** Returns the branches in which hold-back must start or stop; undefined if there is none. */
  due(setting: HoldBackSetting): HoldBackSwitch | undefined {
    // Stores are never removed, so a new store shows in their number.
    const sizes = this.#sql.row<{ acking: number; holding: number }>(`
      SELECT (SELECT count(*) FROM ${ACKNOWLEDGING}) AS acking,
        (SELECT count(*) FROM ${HOLDING}) AS holding`);
    const seen = `${setting} ${sizes?.acking} ${sizes?.holding}`;
    if (seen === this.#seen) return undefined;
    const before = new Set(this.#sql.values<string>(`SELECT name FROM ${HOLDING}`));
    const now = holdingKeys(this.#branches.all, setting, acknowledgingStores(this.#db));
    const names: string[] = [];
    for (const { subsidiaryId, externalId } of setting === 'auto' ? this.#renamed(before, now) : []) {
      now.add(subsidiaryId);
      names.push(externalId);
    }
    if (names.length === 0 && before.size === now.size && [...now].every((key) => before.has(key))) {
      this.#seen = seen;
      return undefined;
    }
    const has = (keys: ReadonlySet<string>, key: string) => keys.has(key) || keys.has(EVERY_BRANCH);
    return {
      now,
      names,
      on: [...now].filter((key) => !has(before, key)),
      off: [...before].filter((key) => !has(now, key)),
    };
  }

  /**
   * Returns the renamed branches: they hold back and lack only an acknowledgement under their external id, and some
   * store whose POS acknowledged is no longer in the configuration.
   */
  #renamed(before: ReadonlySet<string>, now: ReadonlySet<string>): Record<keyof Branch, string>[] {
    if (this.#formerStores().length === 0) return [];
    return this.#branches.all.flatMap(({ subsidiaryId, externalId }) =>
      subsidiaryId !== null && externalId !== null && before.has(subsidiaryId) && !now.has(subsidiaryId)
        ? [{ subsidiaryId, externalId }]
        : [],
    );
  }

  /** Returns the stores whose POS has acknowledged an order and that belong to no configured branch. */
  #formerStores(): string[] {
    const { all } = this.#branches;
    const configured = new Set(all.flatMap((branch) => storesOf(branch, all)));
    return [...acknowledgingStores(this.#db)].filter((store) => !configured.has(store));
  }

  apply({ now, off, names }: HoldBackSwitch, nowMs: number): void {
    // A renamed branch gets the times of its earlier name. If several stores may be that, it gets their widest span.
    const carry = `INSERT OR IGNORE INTO _seen (kind, name, first_at, last_at)
      SELECT 'acknowledging-store', @name, min(first_at), max(last_at) FROM ${ACKNOWLEDGING}
        AND name IN (SELECT value FROM json_each(@former))`;
    const former = JSON.stringify(names.length > 0 ? this.#formerStores() : []);
    for (const name of names) this.#sql.run(carry, { name, former });
    const end = `DELETE FROM ${HOLDING} AND name NOT IN (SELECT value FROM json_each(?))`;
    this.#sql.run(end, JSON.stringify([...now]));
    const hold = "INSERT OR IGNORE INTO _seen (kind, name, first_at) VALUES ('holding-branch', ?, ?)";
    for (const key of now) this.#sql.run(hold, key, isoUtc(nowMs));
    for (const key of off) {
      this.#sql.run("UPDATE _stock_counts SET dirty = 0 WHERE ? IN ('', subsidiary_id)", key);
    }
  }

  /**
   * Starts hold-back in a branch. Ended orders, and with `auto` also older open orders, are marked as booked. With
   * `auto`, recent open orders are held back until they are acknowledged, at most for `editHoldMs`. Counts that differ
   * from the platform are given up, so that the start itself sends nothing.
   */
  begin(key: string, setting: HoldBackSetting, { nowMs, editHoldMs }: { nowMs: number; editHoldMs: number }) {
    const facts = {
      key,
      isAuto: Number(setting === 'auto'),
      from: isoUtc(Math.max(nowMs - BOOKED_WITHIN_MS, this.#firstAckMs(key) - JUST_CAME_MS)),
      until: nowMs + editHoldMs,
    };
    const isOfBranch = "@key IN ('', subsidiary_id)";
    // Lines that the POS left out by name are in no count.
    const isNotLeftOut = 'order_id NOT IN (SELECT order_id FROM _order_acks WHERE without IS NOT NULL)';
    this.#sql.run(
      `UPDATE _stock_steps SET booked_version = 0 WHERE booked_version IS NULL AND ${isOfBranch} AND ${isNotLeftOut}
         AND order_id NOT IN (SELECT order_id FROM _orders INDEXED BY orders_open
           WHERE ${IS_OPEN} AND (coalesce(to_book_since, updated_at) >= @from OR NOT @isAuto))`,
      facts,
    );
    this.#sql.run(
      `UPDATE _stock_steps SET held_until_ms = coalesce(held_until_ms, @until)
         WHERE @isAuto AND booked_version IS NULL AND ${isOfBranch} AND ${isNotLeftOut}`,
      facts,
    );
    this.#sql.run(
      `UPDATE _stock_counts SET given_up = 1
         WHERE (sku, subsidiary_id) IN (
           SELECT sku, subsidiary_id FROM _stock_ledger WHERE ${isOfBranch} AND expected_qty IS NOT wanted_qty)`,
      facts,
    );
    this.#sql.run(`UPDATE _stock_counts SET dirty = 0 WHERE ${isOfBranch}`, facts);
  }

  #firstAckMs(key: string): number {
    const branch = this.#branches.all.find(({ subsidiaryId }) => subsidiaryId === key);
    if (!branch) return 0;
    const stores = storesOf(branch, this.#branches.all);
    const text = `SELECT min(first_at) FROM ${ACKNOWLEDGING} AND name IN (SELECT value FROM json_each(?))`;
    return Date.parse(this.#sql.value<string | null>(text, JSON.stringify(stores)) ?? '') || 0;
  }
}
