import path from 'node:path';
import Database from 'better-sqlite3';
import type { OrderKeeper } from '../../src/domain/order-intake.ts';

/** The keeper whose commits are measured. */
export async function openBenchKeeper(directory: string): Promise<{ keeper: OrderKeeper; close(): void }> {
  const db = new Database(path.join(directory, 'mirror.db'));
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.exec('CREATE TABLE IF NOT EXISTS orders (order_id TEXT PRIMARY KEY, payload TEXT) STRICT');
  const insert = db.prepare(
    'INSERT INTO orders VALUES (?, ?) ON CONFLICT DO UPDATE SET payload = excluded.payload',
  );
  const keep = db.transaction((entries: Parameters<OrderKeeper['keep']>[0]) => {
    for (const entry of entries) {
      if (entry.kind === 'order') insert.run(entry.observation.reading.orderId, entry.observation.raw);
    }
  });
  return {
    keeper: {
      async keep(entries) {
        keep.immediate(entries);
        return entries.map(() => 'created' as const);
      },
    },
    close: () => db.close(),
  };
}

/** Orders that a finished server left in the mirror. */
export function ordersInMirror(directory: string): number {
  const db = new Database(path.join(directory, 'mirror.db'), { readonly: true });
  try {
    return db.prepare<[], number>('SELECT count(*) FROM orders').pluck().get() ?? 0;
  } finally {
    db.close();
  }
}
