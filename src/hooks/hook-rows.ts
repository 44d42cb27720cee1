import type Database from 'better-sqlite3';
import { factOf } from '../db/facts.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { CursorKey } from './hook.ts';
import type { ToldMemory } from './prepared-orders.ts';

/** State of a started hook in state.db. */
export interface HookBegun {
  newsFrom: string | null;
}

/**
 * Stores in state.db which hooks have started and what they were told of preparations, because the mirror may be lost.
 * Methods throw `storage-…`.
 */
export class HookRows {
  readonly #db: Database.Database;

  constructor({ db }: { db: Database.Database }) {
    this.#db = db;
  }

  begun(key: CursorKey): HookBegun | undefined {
    const text = storing(() => factOf(this.#db, `hook.${rowName(key)}`));
    return text === undefined ? undefined : (JSON.parse(text) as HookBegun);
  }

  /** Records that a hook has started, durable on return. Does not change an existing record. */
  noteBegun(key: CursorKey, { newsFrom }: HookBegun): void {
    const sql = 'INSERT OR IGNORE INTO facts (name, value) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, `hook.${rowName(key)}`, JSON.stringify({ newsFrom })));
  }

  keepOnly(keys: readonly CursorKey[]): void {
    const sql =
      "DELETE FROM facts WHERE name GLOB 'hook.*' AND name NOT IN (SELECT 'hook.' || value FROM json_each(?))";
    const told = 'DELETE FROM prepared_orders WHERE hook NOT IN (SELECT value FROM json_each(?))';
    const preparing = keys.filter(({ event }) => event === 'order.prepare').map(({ name }) => name);
    storing(() => {
      sqlOf(this.#db).run(sql, JSON.stringify(keys.map(rowName)));
      sqlOf(this.#db).run(told, JSON.stringify(preparing));
    });
  }

  /** Returns what a hook was told of the preparation of orders. */
  told(hook: string): ToldMemory[] {
    const sql = `SELECT order_id AS orderId, step, is_prepared AS isPrepared, store, digest, seq FROM prepared_orders
      WHERE hook = ?`;
    return storing(() => sqlOf(this.#db).rows<ToldMemory>(sql, hook));
  }

  /** Returns the highest number in `told`; 0 if it is empty. */
  newestTold(hook: string): number {
    const sql = 'SELECT max(seq) FROM prepared_orders WHERE hook = ?';
    return storing(() => sqlOf(this.#db).value<number | null>(sql, hook)) ?? 0;
  }

  /** Records what a hook was told, durable on return, and deletes what it was told before `before` (epoch ms). */
  noteTold(
    hook: string,
    told: readonly ToldMemory[],
    { nowMs, before }: { nowMs: number; before: number },
  ): void {
    const put = `INSERT INTO prepared_orders (hook, order_id, step, is_prepared, store, digest, seq, told_ms)
      VALUES (@hook, @orderId, @step, @isPrepared, @store, @digest, @seq, @nowMs)
      ON CONFLICT DO UPDATE SET step = @step, is_prepared = @isPrepared, store = @store, digest = @digest,
        seq = @seq, told_ms = @nowMs WHERE step <= @step`;
    storing(() =>
      this.#db
        .transaction(() => {
          for (const each of told) sqlOf(this.#db).run(put, { ...each, hook, nowMs });
          sqlOf(this.#db).run('DELETE FROM prepared_orders WHERE hook = ? AND told_ms < ?', hook, before);
        })
        .immediate(),
    );
  }
}

/**
 * Returns the name of a row: `printer` for orders, `printer change.rejected` for rejected changes. No hook name has a
 * blank.
 */
function rowName({ name, event }: CursorKey): string {
  return event === 'order' ? name : `${name} ${event}`;
}
