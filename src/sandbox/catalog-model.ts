/** A branch of the company. The API cannot list them. */
export interface Branch {
  subsidiaryId: string;
  /** extId of the branch; null when it has none. */
  externalId: string | null;
}

/** A product as the sandbox keeps it. */
export interface CatalogProduct {
  id: string;
  name: string;
  /** Not part of the product response. */
  description: string;
  category: string;
  show: boolean;
  /** Epoch milliseconds; what `orderBy=CreatedDate` sorts by. Not part of the product response. */
  createdAtMs: number;
  children: CatalogSku[];
}

export interface CatalogSku {
  sku: number;
  barcode: string;
  price: number;
  withDiscount: boolean;
  /** Percent. */
  discount: number;
  show: boolean;
  stocks: { subsidiaryId: string; qty: number; show: boolean }[];
  integrations: Integration[];
}

/** One mapping per branch, to the ids of external point-of-sale platforms. */
export interface Integration {
  subsidiaryId: string;
  productIdPosA: string | null;
  productCodePosB: string | null;
  extId: string | null;
}

/** Where an integration id points to. */
export interface Mapping {
  product: CatalogProduct;
  sku: CatalogSku;
  subsidiaryId: string;
}

/** An order took more than there was: the shop sold what it did not have. */
export interface Oversell {
  orderId: string;
  sku: number;
  subsidiaryId: string;
  /** How much was missing. */
  short: number;
}

/** The ids that one mapping carries, in the order in which the platform searches them. */
export function idsOf(integration: Integration): string[] {
  const { productIdPosA, productCodePosB, extId } = integration;
  return [productIdPosA, productCodePosB, extId].filter((id) => id !== null);
}

/** The product as GET /product and GET /product/list show it. */
export function shownProduct(product: CatalogProduct): unknown {
  const { id, name, category, show, children } = product;
  return { id, name, category, show, children };
}
