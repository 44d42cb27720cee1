import { existsSync } from 'node:fs';
import path from 'node:path';
import Database from 'better-sqlite3';
import { compareOrders } from '../../../src/demo/demo-pos.ts';
import type { SandboxControl } from '../../../src/sandbox/control.ts';
import type { Workplace } from '../../support/workplace.ts';
import type { Expectations } from './soundness.ts';

/** Returns a sentence for each order, change and acknowledgement that has not yet arrived where it belongs. */
export function notArrived(
  { sandbox: { control }, storage, mirrorRows }: Workplace,
  { oldOrders, handedOver }: Pick<Expectations, 'oldOrders' | 'handedOver'>,
): string[] {
  const old = new Set(oldOrders);
  const rows = mirrorRows().filter((row) => !old.has(row.order_id));
  const inbox = path.join(storage, 'inbox', 'inbox.db');
  return [
    ...compareOrders(control.orders(), rows).differences,
    ...waiting(path.join(storage, 'mirror.db'), true, "outbox WHERE state IN ('pending', 'sending')"),
    ...['stock_changes', 'product_changes', 'order_acks'].flatMap((table) => waiting(inbox, false, table)),
    ...handedOver.unlike((target) => atPlatform(control, target)),
  ];
}

/**
 * Returns a sentence if `what` selects any rows. The inbox is opened for writing, like a POS does, because a kill may
 * have left a journal that a read-only connection cannot roll back.
 */
function waiting(file: string, readonly: boolean, what: string): string[] {
  if (!existsSync(file)) return [`${file} is not there yet`];
  const db = new Database(file, { readonly, fileMustExist: true, timeout: 1_000 });
  try {
    const count = db.prepare<[], number>(`SELECT count(*) FROM ${what}`).pluck().get() ?? 0;
    return count === 0 ? [] : [`${count} ${what}`];
  } finally {
    db.close();
  }
}

/** Returns the platform's value of a target such as `stock:A-1001-2` or `price:1001`. */
function atPlatform(control: SandboxControl, target: string): number | undefined {
  const [kind, name = ''] = target.split(':');
  if (kind === 'stock') {
    const [, sku, branch] = name.split('-');
    return control.stockOf(Number(sku), `sub-${branch}`);
  }
  const skus = control.products().flatMap(({ children }) => children);
  return skus.find(({ sku }) => sku === Number(name))?.price;
}
