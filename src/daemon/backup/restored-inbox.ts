import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync, renameSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
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
    return [{ kind, path }];
  });
}

export interface AcksToRestore {
  staging: string;
  /** Acknowledged since the backup was made, by the mirror whose place it takes. */
  ackedOrderIds: readonly string[];
}

/** What is handed to the inbox, from where the daemon takes it: an order that was booked stays booked. */
export function acksToRestore({ staging, ackedOrderIds }: AcksToRestore): { orderId: string; key: string }[] {
  const file = join(staging, ACKS_FILE);
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean) : [];
  return [
    ...lines.map((line) => ack.parse(JSON.parse(line))),
    ...ackedOrderIds.map((orderId) => ({ orderId, key: randomUUID() })),
  ].map(({ orderId, key }) => ({ orderId, key: key.replace(/^ack:/, '') }));
}
