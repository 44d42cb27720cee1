import path from 'node:path';
import Database from 'better-sqlite3';
import { openBenchStores } from './bench-stores.ts';
import { externalIdOf, skuOf, targetOf } from './catalog-samples.ts';

/*
 * The least that taking changes in could be: one prepared upsert for each, in transactions of the same size, into
 * the same file with the same columns and indexes. What each change is for is known before the clock runs.
 * node upsert-loop.ts DIRECTORY PRODUCTS PER_REQUEST PER_COMMIT
 * Prints JSON: milliseconds of each request's worth, first all new targets, then all once more.
 */
const [directory = '', products = '', perRequest = '', perCommit = ''] = process.argv.slice(2);
const { mirror } = await openBenchStores(directory, Number(products));
const db = new Database(path.join(directory, 'mirror.db'));
db.pragma('journal_mode = wal');
db.pragma('synchronous = FULL');

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
const upsert = db.prepare<unknown[]>(
  `INSERT INTO outbox (${COLUMNS}, state) VALUES (${COLUMNS.map(() => '?')}, 'pending')
     ON CONFLICT (kind, target) WHERE state = 'pending' AND held_guard IS NULL DO UPDATE SET
       ${VALUES.map((column) => `${column} = excluded.${column}`)},
       message = NULL, field_versions = NULL, replaced = replaced + 1`,
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

const takeMany = db.transaction((from: number, to: number, qty: number) => {
  const at = new Date().toISOString();
  for (let n = from; n < to; n++) take(n, qty, at);
});

const times: number[] = [];
for (let round = 1; round <= 2; round++) {
  for (let from = 0; from < Number(products); from += Number(perRequest)) {
    const beganMs = performance.now();
    for (let at = from; at < from + Number(perRequest); at += Number(perCommit)) {
      takeMany.immediate(at, at + Number(perCommit), round);
    }
    times.push(performance.now() - beganMs);
  }
}
process.stdout.write(JSON.stringify(times));
db.close();
await mirror.close();
