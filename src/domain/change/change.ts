import type { ProductChangeItem, StockChangeItem } from '../platform/platform.ts';

/** What a change is about; also which pair of endpoints carries it. */
export type ChangeKind = 'product' | 'stock';

/**
 * A quantity as a POS hands it over. Names at least one of `externalId` and `sku`; the platform's stock
 * endpoints take only externalId, so a sku is looked up in the mirror. The branch is needed only where the
 * product is in several.
 */
export interface StockChange {
  externalId?: string;
  /** Decimal digits without leading zeros. */
  sku?: string;
  qty: number;
  /** Stock visibility in the branch; left as it is when missing. */
  show?: boolean;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

/** Price, texts or visibility as a POS hands them over, with at least one of them present. */
export interface ProductChange {
  externalId?: string;
  sku?: string;
  price?: number;
  name?: string;
  /** An empty text clears it. */
  description?: string;
  /** Visibility of the whole product. */
  show?: boolean;
}

export type FaultCode =
  | 'not-an-object'
  | 'unknown-column'
  | 'no-product' // neither sku nor externalId
  | 'nothing-to-change'
  | 'bad-value'
  | 'bad-text' // not UTF-8, NUL, or a line that does not fit its header
  | 'cut' // the input ends in the middle
  | 'refused-file'; // nothing of the file can be read

/** Why one item cannot be taken. Nothing else is affected by it. */
export interface ChangeFault {
  code: FaultCode;
  /** The column at fault, where it is one. */
  column: string | null;
  /** One or more sentences for the person who made the item. */
  message: string;
}

export type ChangeReading<T> = { change: T } | { fault: ChangeFault };

/** A change as it will be sent, with the target it is for. */
export type ChangeBody = ProductChangeItem | StockChangeItem;

/** Keys of a body that say which product and branch; all others are values. */
export const ADDRESS_KEYS = ['sku', 'externalId', 'subsidiaryId', 'subsidiaryExternalId'] as const;

export const STOCK_COLUMNS = [
  'externalId',
  'sku',
  'qty',
  'show',
  'subsidiaryId',
  'subsidiaryExternalId',
] as const;
export const PRODUCT_COLUMNS = ['externalId', 'sku', 'price', 'name', 'description', 'show'] as const;
