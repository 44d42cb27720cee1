import type { SandboxControl } from '../sandbox/control.ts';

/** Branch of the till, and another branch of the same company. */
export const OWN = { subsidiaryId: 'sub-1', externalId: 'B1' };
export const OTHER = { subsidiaryId: 'sub-2', externalId: 'B2' };

/** An article in the till's shop. */
export interface Article {
  sku: number;
  /** The till's id of the article, which the platform has in the mapping of the till's branch. */
  externalId: string;
  name: string;
  qty: number;
  price: number;
  /** Whether the platform sells the article. */
  isListed: boolean;
}

/**
 * Quantity and number of articles, by behaviour id, of the behaviours that do not use `USUAL`. Id 0 has the article
 * that `Stage.fence` orders. Behaviours never share an article.
 */
const PLAN: Readonly<Record<number, { qty: number; articles?: number }>> = {
  0: { qty: 100_000 },
  9: { qty: 1_000 },
  11: { qty: 100, articles: 2 },
  15: { qty: 1 },
  18: { qty: 1_000 },
  21: { qty: 10, articles: 100 },
  22: { qty: 1, articles: 12 },
};
const USUAL: { qty: number; articles?: number } = { qty: 100 };
/** Behaviour whose article has the same externalId in both branches. */
const IN_BOTH = 14;
const ODD_ID = 25;
/** Behaviour whose article has an id that looks like a number, with zeros in front. */
const DIGITS_ID = 34;
/** Behaviour whose article the platform also knows by the id `LATE_ID`, once that is added to its mapping. */
const LATE_SKU = 28;
export const LATE_ID = 'K-late';
/** Length of an id that is one character too long. */
const TOO_LONG = 201;
const LAST_ID = 38;

/**
 * Returns the articles of a behaviour. The last one of behaviour 11 is not in the platform's catalogue; the last one of
 * behaviour 21 also has an id that tillsync refuses.
 */
export function articlesOf(id: number): Article[] {
  const { qty, articles = 1 } = PLAN[id] ?? USUAL;
  return Array.from({ length: articles }, (_, n): Article => {
    const sku = 100_000 + id * 1_000 + n + 1;
    const isLast = n === articles - 1;
    const isTooLong = id === 21 && isLast;
    const isListed = !isTooLong && !(id === 11 && isLast);
    return {
      sku,
      externalId: isTooLong ? `K-${sku}-`.padEnd(TOO_LONG, 'x') : idIn(id, sku, OWN.externalId),
      name: `Conform ${id}-${n + 1}`,
      qty,
      price: 1_990,
      isListed,
    };
  });
}

/** Returns the first article of a behaviour. */
export const article = (id: number): Article => articlesOf(id)[0] as Article;

export function allArticles(): Article[] {
  return Array.from({ length: LAST_ID + 1 }, (_, id) => articlesOf(id)).flat();
}

function idIn(id: number, sku: number, shop: string): string {
  if (id === IN_BOTH) return `K-${sku}`;
  // It does not end with the shop's name, because the other shop has no such id.
  if (id === DIGITS_ID) return shop === OWN.externalId ? `000${sku}` : `K-${sku}-${shop}`;
  return id === ODD_ID ? `K "${sku}" it's ñ 🍕 ${shop}` : `K-${sku}-${shop}`;
}

/**
 * Returns the articles that the platform sells, each as one product with a stock in both branches. With `isLateKnown`,
 * `LATE_ID` is mapped too.
 */
export function productsOf(
  articles: readonly Article[],
  nowMs: number,
  isLateKnown = false,
): Parameters<SandboxControl['putProduct']>[0][] {
  const shops = [OWN, OTHER];
  const lateSku = articlesOf(LATE_SKU)[0]?.sku;
  return articles
    .filter(({ isListed }) => isListed)
    .map(({ sku, name, price, qty }) => ({
      id: `product-${sku}`,
      name,
      description: '',
      category: 'Conform',
      show: true,
      createdAtMs: nowMs,
      children: [
        {
          sku,
          barcode: `780${sku}`,
          price,
          withDiscount: false,
          discount: 0,
          show: true,
          stocks: shops.map(({ subsidiaryId }) => ({ subsidiaryId, qty, show: true })),
          integrations: shops.map(({ subsidiaryId, externalId }) => ({
            subsidiaryId,
            productIdPosA: null,
            productCodePosB: isLateKnown && sku === lateSku ? LATE_ID : null,
            extId: idIn(Math.floor((sku - 100_000) / 1_000), sku, externalId),
          })),
        },
      ],
    }));
}

/**
 * Returns the file from which a till reads its articles: columns separated by tabs, with their names in the first line.
 */
export function articleFile(articles: readonly Article[]): string {
  const rows = articles.map(({ sku, externalId, name, qty, price }) => [sku, externalId, name, qty, price]);
  return [['sku', 'external_id', 'name', 'qty', 'price'], ...rows]
    .map((row) => `${row.join('\t')}\n`)
    .join('');
}
