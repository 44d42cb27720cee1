import { existsSync } from 'node:fs';
import { whenFree } from '../../domain/busy.ts';
import { asTillsyncError, type TillsyncError } from '../../domain/errors.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { lookInto } from '../../store/backup/copy-database.ts';
import { type InboxBatch, InboxRows } from '../../store/inbox/inbox-rows.ts';
import { type TarFile, textFile } from '../archive/tar-writer.ts';
import { ACKS_FILE, type Manifest, PRODUCT_FILE, STOCK_FILE } from './manifest.ts';

/** More are in nobody's inbox: the daemon empties it within a second. */
const ROWS_MAX = 200_000;

export interface InboxCopyOfRows {
  files: TarFile[];
  counts: Manifest['inbox'];
  fault: TillsyncError | null;
}

/** What a POS handed over by SQL and nobody has taken yet, one JSON document a line, as `push` reads changes. */
export async function copyInboxRows(path: string, clock: Clock): Promise<InboxCopyOfRows> {
  const none = { stockChanges: 0, productChanges: 0, orderAcks: 0 };
  if (!existsSync(path)) return { files: [], counts: none, fault: null };
  try {
    const batch = await whenFree(clock, () => lookInto(path, (db) => new InboxRows(db).read(ROWS_MAX)));
    return copyOf(batch);
  } catch (error) {
    return { files: [], counts: null, fault: asTillsyncError(error) };
  }
}

function copyOf({ changes, acks }: InboxBatch): InboxCopyOfRows {
  const ofKind = (kind: 'stock' | 'product') =>
    changes
      .filter((change) => change.kind === kind)
      .map(({ value, reference }) => (reference === null ? value : { ...value, reference }));
  const [stock, product] = [ofKind('stock'), ofKind('product')];
  const files = [
    { name: STOCK_FILE, documents: stock },
    { name: PRODUCT_FILE, documents: product },
    { name: ACKS_FILE, documents: acks.map(({ orderId, key }) => ({ orderId, key })) },
  ];
  return {
    files: files
      .filter(({ documents }) => documents.length > 0)
      .map(({ name, documents }) =>
        textFile(name, documents.map((each) => `${JSON.stringify(each)}\n`).join('')),
      ),
    counts: { stockChanges: stock.length, productChanges: product.length, orderAcks: acks.length },
    fault: null,
  };
}
