import type { OrderSnapshot } from '../../sandbox/order-model.ts';

/** What the POS reads of one order. */
export interface MirroredRow {
  order_id: string;
  status: string | null;
  code: number | null;
  amount_to_pay: number | string | null;
  delivery_fee: number | string | null;
  lines: number;
  pieces: number;
}

/** The query a POS could ask, over plain SQL. */
export const MIRRORED_ROWS = `
  SELECT order_id, status, code, amount_to_pay, delivery_fee,
    (SELECT count(*) FROM order_items i WHERE i.order_id = o.order_id) AS lines,
    (SELECT coalesce(sum(quantity), 0) FROM order_items i WHERE i.order_id = o.order_id) AS pieces
  FROM orders o`;

export interface Comparison {
  atPlatform: number;
  inMirror: number;
  equal: number;
  /** One sentence for each order that differs. */
  differences: string[];
}

/** Holds the mirror against the platform, order by order. */
export function compareOrders(
  platform: readonly OrderSnapshot[],
  mirror: readonly MirroredRow[],
): Comparison {
  const rows = new Map(mirror.map((row) => [row.order_id, row]));
  const differences: string[] = [];
  for (const order of platform) {
    const row = rows.get(order.internalOrderId);
    rows.delete(order.internalOrderId);
    const fault = row ? differenceOf(order, row) : 'is not in the mirror';
    if (fault !== undefined) differences.push(`order #${order.code} (${order.internalOrderId}) ${fault}`);
  }
  for (const row of rows.values()) differences.push(`order ${row.order_id} is in the mirror alone`);
  return {
    atPlatform: platform.length,
    inMirror: mirror.length,
    equal: platform.length - differences.filter((text) => !text.endsWith('alone')).length,
    differences,
  };
}

function differenceOf(order: OrderSnapshot, row: MirroredRow): string | undefined {
  const pieces = order.items.reduce((sum, item) => sum + item.amount, 0);
  const pairs: [string, unknown, unknown][] = [
    ['status', order.status, row.status],
    ['code', order.code, row.code],
    ['amountToPay', order.amountToPay, row.amount_to_pay],
    ['deliveryFee', order.deliveryFee, row.delivery_fee],
    ['number of lines', order.items.length, row.lines],
    ['number of pieces', pieces, row.pieces],
  ];
  const differing = pairs.find(([, there, here]) => there !== here);
  return differing && `has ${differing[0]} ${String(differing[1])} there and ${String(differing[2])} here`;
}
