type Sent = number | string | null;

/** A product as the mirror has it now, pushed changes included; null where nothing is known. */
export interface MirroredProduct {
  productId: string;
  name: string | null;
  category: string | null;
  show: boolean | null;
  /** When no branch listed it any more. */
  vanishedAt: string | null;
  updatedAt: string;
  skus: MirroredSku[];
}

export interface MirroredSku {
  sku: string;
  barcode: string | null;
  price: Sent;
  withDiscount: Sent;
  discount: Sent;
  show: boolean | null;
  stocks: { subsidiaryId: string; qty: Sent; show: boolean | null }[];
  integrations: {
    subsidiaryId: string;
    productIdPosA: string | null;
    productCodePosB: string | null;
    extId: string | null;
  }[];
}

/** All that is given must hold. */
export interface ProductFilter {
  /** Part of a name, or a whole sku, barcode or externalId. */
  text?: string | undefined;
  sku?: string | undefined;
  productId?: string | undefined;
  /** In any of the three mapping fields. */
  externalId?: string | undefined;
  /** Only products with a stock or a mapping in this branch. */
  subsidiaryId?: string | undefined;
  /** Only products with a higher id, for the next page. */
  after?: string | undefined;
  limit: number;
}
