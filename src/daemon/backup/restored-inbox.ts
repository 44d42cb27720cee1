import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { giveToOwnerOf } from '../../store/directory-owner.ts';
import { openInboxFile } from '../../store/inbox/inbox-file.ts';
import { storing } from '../../store/sqlite.ts';
import { ACKS_FILE, PRODUCT_FILE, STOCK_FILE } from './manifest.ts';

const ack = z.object({ orderId: z.string().min(1), key: z.string() });

export interface KeptChanges {
  kind: 'stock' | 'products';
  path: string;
}

/**
 * What a POS had handed over when the backup was made. Changes become files for a person: by themselves they would
 * put older values over newer ones. Returns those files.
 */
export function keepChanges(staging: string, directory: string, stamp: string): KeptChanges[] {
  const kinds = [
    { kind: 'stock', name: STOCK_FILE },
    { kind: 'products', name: PRODUCT_FILE },
  ] as const;
  return kinds.flatMap(({ kind, name }) => {
    if (!existsSync(join(staging, name))) return [];
    const path = join(directory, name.replace('.ndjson', `.from-backup-${stamp}.ndjson`));
    renameSync(join(staging, name), path);
    giveToOwnerOf(directory, path);
    return [{ kind, path }];
  });
}

export interface RestoreAcksOptions {
  staging: string;
  inbox: string;
  group: string | undefined;
  /** Acknowledged since the backup was made, by the mirror whose place it takes. */
  ackedOrderIds: readonly string[];
}

/**
 * Hands acknowledgements to the inbox, from where the daemon takes them: an order that was booked stays booked.
 * What lies in an inbox that is there is newer than any backup and stays. Returns how many. Throws `storage-…`.
 */
export function restoreAcks({ staging, inbox, group, ackedOrderIds }: RestoreAcksOptions): number {
  const file = join(staging, ACKS_FILE);
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  const acks = [
    ...lines.map((line) => ack.parse(JSON.parse(line))),
    ...ackedOrderIds.map((orderId) => ({ orderId, key: randomUUID() })),
  ];
  if (acks.length === 0) return 0;
  const { db } = openInboxFile({ path: inbox, group });
  try {
    const insert = db.prepare('INSERT OR IGNORE INTO order_acks (order_id, change_key) VALUES (?, ?)');
    const insertAll = db.transaction(() => {
      for (const { orderId, key } of acks) insert.run(orderId, key.replace(/^ack:/, ''));
    });
    storing(() => insertAll.immediate());
    return acks.length;
  } finally {
    db.close();
  }
}
