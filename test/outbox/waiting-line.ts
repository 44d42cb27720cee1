import type Database from 'better-sqlite3';

/**
 * Queues `count` stock counts of a branch, for products that nothing else uses. Uses SQL, which is fast for many rows.
 */
export function fillLine(db: Database.Database, branch: string, count: number): void {
  const first =
    (db.prepare("SELECT value FROM marks WHERE name = 'outbox.version'").pluck().get() as number) + 1;
  db.prepare(
    `WITH RECURSIVE n (i) AS (SELECT @first UNION ALL SELECT i + 1 FROM n WHERE i < @last)
     INSERT INTO _outbox (change_id, kind, target, conflict_key, body, fields, state, created_at, priority, queue_seq, basis,
       sku, subsidiary_id, branch, source, version)
     SELECT i, 'stock', 'sku:w' || i || '@' || @branch, 'sku:w' || i || '@' || @branch,
       '{"externalId":"W' || i || '","subsidiaryId":"' || @branch || '","qty":3}', 'qty', 'pending',
       '2026-01-01T00:00:00.000Z', 1, i, 'mirror', 'w' || i, @branch, @branch, 'http', i FROM n`,
  ).run({ branch, first, last: first + count - 1 });
  db.prepare("UPDATE marks SET value = ? WHERE name = 'outbox.version'").run(first + count - 1);
}
