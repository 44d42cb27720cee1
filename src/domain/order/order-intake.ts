import type { OrderObservation, OrderOutcome, Unreadable } from './order.ts';

/** Where observations become durable; what the receiver waits for before it answers 2xx. */
export interface OrderKeeper {
  /**
   * Merges all entries in one transaction that is on the disk when the promise resolves; one outcome per
   * entry, in order. Rejects with a `storage-…` code when nothing of them was kept.
   */
  keep(entries: readonly IntakeEntry[]): Promise<IntakeOutcome[]>;
}

export type IntakeEntry =
  | { kind: 'order'; observation: OrderObservation }
  | { kind: 'unreadable'; unreadable: Unreadable };

export type IntakeOutcome = OrderOutcome | 'quarantined';

/** Mirrors a whole answer of GET /order/all, small or huge, without holding up callbacks. */
export interface OrderImporter {
  importAnswer(body: Uint8Array, options: ImportOptions): Promise<ImportReport>;
}

export interface ImportOptions {
  observedAtMs: number;
  /** Newest event seq when the request began. */
  asOfSeq: number;
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
}

export interface ImportReport {
  /** False: no list of orders was found; the whole answer is in quarantine. */
  listFound: boolean;
  records: number;
  created: number;
  changed: number;
  confirmed: number;
  superseded: number;
  /** Records without an order id or otherwise unreadable, in quarantine. */
  unreadable: number;
  /** Ids of orders that this poll created, at most 1,000, to compare with what webhooks announced. */
  createdIds: string[];
  /** The envelope speaks of further pages. */
  morePages: boolean;
  /** Smallest and largest `code` seen; null when there was none. */
  codes: { min: number; max: number } | null;
}
