import type { Mirror } from '../../store/mirror/mirror.ts';

/** Rows of the mirror. */
export interface MirrorCounts {
  orders: number;
  openOrders: number;
  /** Newest seq of the change feed. */
  events: number;
  quarantine: number;
}

/** Word for word the condition of the index `orders_open`. */
const OPEN = "(status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))";

export function mirrorCounts(mirror: Pick<Mirror, 'read' | 'newestSeq'>): MirrorCounts {
  const counts = mirror.read(({ db }) =>
    db
      .prepare<[], Omit<MirrorCounts, 'events'>>(
        `SELECT (SELECT count(*) FROM orders) AS orders,
           (SELECT count(*) FROM orders WHERE ${OPEN}) AS openOrders,
           (SELECT count(*) FROM quarantine) AS quarantine`,
      )
      .get(),
  );
  const { orders = 0, openOrders = 0, quarantine = 0 } = counts ?? {};
  return { orders, openOrders, events: mirror.newestSeq(), quarantine };
}
