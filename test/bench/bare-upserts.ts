import path from 'node:path';
import Database from 'better-sqlite3';
import { externalIdOf, skuOf, targetOf } from './catalog-samples.ts';

const VALUES = [
  'version',
  'conflict_key',
  'body',
  'priority',
  'basis',
  'sku',
  'subsidiary_id',
  'source',
  'reference',
  'zeroed_at',
  'as_of_seq',
];
const COLUMNS = [...VALUES, 'change_id', 'kind', 'target', 'fields', 'created_at', 'queue_seq'];

export interface BareUpserts {
  /** Writes one count for each product from number `from` to before `to`, in one durable transaction. */
  take(from: number, to: number, qty: number): void;
  close(): void;
}

/**
 * Opens the outbox of the mirror in `directory`, and writes each change by a prepared upsert. No target is looked up,
 * because each is computed from the product's number.
 */
export function bareUpserts(directory: string): BareUpserts {
  const db = new Database(path.join(directory, 'mirror.db'));
  db.pragma('journal_mode = wal');
  db.pragma('synchronous = FULL');
  const upsert = db.prepare<unknown[]>(
    `INSERT INTO _outbox (${COLUMNS}, state) VALUES (${COLUMNS.map(() => '?')}, 'pending')
       ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
         ${VALUES.map((column) => `${column} = excluded.${column}`)},
         message = NULL, replaced = replaced + 1`,
  );

  let version = 0;
  function take(n: number, qty: number, at: string): void {
    version += 1;
    const target = targetOf(n);
    const body = JSON.stringify({ externalId: externalIdOf(n), qty });
    upsert.run(
      version,
      target,
      body,
      1,
      'mirror',
      skuOf(n),
      'sub-1',
      'http',
      null,
      null,
      0,
      version,
      'stock',
      target,
      'qty',
      at,
      version,
    );
  }

  const submitMany = db.transaction((from: number, to: number, qty: number) => {
    const at = new Date().toISOString();
    for (let n = from; n < to; n++) take(n, qty, at);
  });
  return {
    take: (from, to, qty) => submitMany.immediate(from, to, qty),
    close: () => db.close(),
  };
}
