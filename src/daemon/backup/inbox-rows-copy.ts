import { lstatSync } from 'node:fs';
import { asTillsyncError, hasCode, type TillsyncError } from '../../domain/errors.ts';
import type { InboxFrom } from '../../store/inbox/inbox-message.ts';
import type { InboxAck, InboxChange, InboxRow } from '../../store/inbox/inbox-rows.ts';
import { type TarFile, textFile } from '../archive/tar-writer.ts';
import { type LookIntoInboxOptions, lookIntoInbox } from '../storage/look-into-inbox.ts';
import { ACKS_FILE, type Manifest, PRODUCT_FILE, STOCK_FILE } from './manifest.ts';

/** More are in nobody's inbox: the daemon empties it within a second. */
const ROWS_MAX = 200_000;

export interface InboxCopyOfRows {
  files: TarFile[];
  counts: Manifest['inbox'];
  fault: TillsyncError | null;
}

/** What a POS handed over by SQL and nobody has taken yet, one JSON document a line, as `push` reads changes. */
export async function copyInboxRows(options: LookIntoInboxOptions): Promise<InboxCopyOfRows> {
  const none = { stockChanges: 0, productChanges: 0, orderAcks: 0 };
  if (!lstatSync(options.path, { throwIfNoEntry: false })) return { files: [], counts: none, fault: null };
  try {
    return copyOf(await rowsOf(options));
  } catch (error) {
    if (hasCode(error, 'aborted')) throw error;
    return { files: [], counts: null, fault: asTillsyncError(error) };
  }
}

interface Rows {
  changes: InboxChange[];
  acks: InboxAck[];
}

/** Page by page, so that a POS is never locked out for long. What is taken in meanwhile is in the mirror. */
function rowsOf(options: LookIntoInboxOptions): Promise<Rows> {
  return lookIntoInbox(options, async (ask) => {
    const rows: Rows = { changes: [], acks: [] };
    const from: InboxFrom = {};
    while (rows.changes.length + rows.acks.length < ROWS_MAX) {
      const { changes, acks, more } = await ask({ do: 'copy', from });
      for (const { table, id } of [...changes, ...acks]) from[table] = String(BigInt(id) + 1n);
      rows.changes.push(...changes);
      rows.acks.push(...acks);
      if (!more) break;
    }
    return rows;
  });
}

function copyOf(rows: Rows): InboxCopyOfRows {
  // Nobody takes these: they become rejected changes.
  const isShort = ({ tooLong }: InboxRow) => tooLong === null;
  const [changes, acks] = [rows.changes.filter(isShort), rows.acks.filter(isShort)];
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
