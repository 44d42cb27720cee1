import path from 'node:path';
import { openMirror } from '../../src/app/mirror.ts';
import { systemClock } from '../../src/core/system-clock.ts';
import { openDatabase } from '../../src/db/sqlite.ts';
import type { OrderSink } from '../../src/orders/merging/order.ts';

const mirrorPath = (directory: string) => path.join(directory, 'mirror.db');

/** Opens the mirror as the daemon does. */
export function openBenchSink(directory: string): { sink: OrderSink; close(): Promise<void> } {
  const mirror = openMirror({ path: mirrorPath(directory), clock: systemClock });
  return { sink: mirror, close: () => mirror.close() };
}

/** Returns the number of orders that a reader finds in the mirror. */
export function ordersInMirror(directory: string): number {
  const db = openDatabase({ path: mirrorPath(directory), mode: 0o640, readonly: true, busyTimeoutMs: 100 });
  try {
    return db.prepare<[], number>('SELECT count(*) FROM orders').pluck().get() ?? 0;
  } finally {
    db.close();
  }
}
