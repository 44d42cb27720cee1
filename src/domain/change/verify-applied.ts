import type { ProductRecord, SkuRecord } from '../platform/platform.ts';
import type { ChangeBody } from './change.ts';

/**
 * What a product that was read again says of a change that was sent:
 * - `applied`: every value that can be seen is there
 * - `differs`: one is not
 * - `unseen`: nothing of the change can be seen, such as a description, or not which of several values is meant
 */
export type Verification = 'applied' | 'differs' | 'unseen';

/**
 * Compares a sent change with the product as it is on the platform now; null when there is none. A product that
 * does not have what the change names says nothing for it, whatever its values.
 */
export function verifyApplied(body: ChangeBody, record: ProductRecord | null): Verification {
  if (!record) return 'differs';
  const seen = 'qty' in body ? stockSeen(body, record) : productSeen(body, record);
  if (seen.length === 0) return 'unseen';
  return seen.every((each) => each) ? 'applied' : 'differs';
}

function productSeen(body: ChangeBody, record: ProductRecord): boolean[] {
  const skus = record.children.filter((child) => names(body, child));
  if (skus.length === 0) return [false];
  const seen: boolean[] = [];
  if ('price' in body) seen.push(skus.every((child) => sameNumber(child.price, body.price)));
  if ('name' in body) seen.push(record.name === body.name);
  if (body.show !== undefined && record.show !== null) seen.push(record.show === body.show);
  return seen;
}

function stockSeen(body: Extract<ChangeBody, { qty: number }>, record: ProductRecord): boolean[] {
  const entries = record.children.flatMap((child) =>
    child.stocks.filter((stock) => {
      const mappings = child.integrations.filter((each) => each.subsidiaryId === stock.subsidiaryId);
      const named = mappings.some((mapping) => hasExternalId(mapping, body.externalId));
      return named && (body.subsidiaryId === undefined || body.subsidiaryId === stock.subsidiaryId);
    }),
  );
  const same = entries.map((entry) => {
    const showDiffers = body.show !== undefined && entry.show !== null && entry.show !== body.show;
    return sameNumber(entry.qty, body.qty) && !showDiffers;
  });
  // Without a branch's internal id several entries may carry the externalId; where they differ, none proves anything.
  return same.includes(true) && same.includes(false) ? [] : [same.includes(true)];
}

function names(body: ChangeBody, child: SkuRecord): boolean {
  if ('sku' in body && body.sku !== undefined) return child.sku === String(body.sku);
  return child.integrations.some((mapping) => hasExternalId(mapping, body.externalId));
}

function hasExternalId(mapping: SkuRecord['integrations'][number], externalId: string | undefined): boolean {
  const { extId, productIdPosA, productCodePosB } = mapping;
  return externalId !== undefined && [extId, productIdPosA, productCodePosB].includes(externalId);
}

/** Whether a number as the platform sent it, perhaps as text, is `wanted`. */
export function sameNumber(sent: number | string | null, wanted: number | undefined): boolean {
  if (sent === null || wanted === undefined || sent === '') return false;
  return Number(sent) === wanted;
}
