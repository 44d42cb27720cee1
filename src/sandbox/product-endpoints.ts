import type { z } from 'zod';
import { batchRequestFrame, productChangeItem } from '../platform/schemas/product-change.ts';
import { productGetQuery } from '../platform/schemas/product-query.ts';
import { stockChangeItem } from '../platform/schemas/stock-change.ts';
import type { Catalog } from './catalog.ts';
import { shownProduct } from './catalog-model.ts';
import type { Call } from './engine.ts';
import { envelope, failure, type Reply, refusal } from './exchange.ts';
import { type Written, writeProduct, writeStock } from './product-writer.ts';
import type { SandboxSettings } from './settings.ts';

interface ItemKind<T> {
  schema: z.ZodType<T>;
  write: (catalog: Catalog, item: T) => Written;
  /** Fields of an item that a batch error repeats. */
  named: readonly string[];
}

const PRODUCT = { schema: productChangeItem, write: writeProduct, named: ['sku', 'externalId'] };
const STOCK = { schema: stockChangeItem, write: writeStock, named: ['externalId'] };

/** GET /product, PUT /product, PUT /product/stock and both batches. */
export class ProductEndpoints {
  readonly #settings: SandboxSettings;

  constructor(settings: SandboxSettings) {
    this.#settings = settings;
  }

  get(catalog: Catalog, call: Call): Reply {
    const query = productGetQuery.safeParse(Object.fromEntries(call.query));
    if (!query.success) return this.invalid(query.error);
    const { sku, externalId } = query.data;
    const found =
      sku === undefined ? catalog.findByIntegration(externalId ?? '')[0] : catalog.findSku(Number(sku));
    return envelope(found ? shownProduct(found.product) : null);
  }

  put(catalog: Catalog, call: Call): Reply {
    return this.#one(PRODUCT, catalog, call);
  }

  putStock(catalog: Catalog, call: Call): Reply {
    return this.#one(STOCK, catalog, call);
  }

  batch(catalog: Catalog, call: Call): Reply {
    return this.#many(PRODUCT, catalog, call);
  }

  stockBatch(catalog: Catalog, call: Call): Reply {
    return this.#many(STOCK, catalog, call);
  }

  /** The answer to a request that does not validate. */
  invalid(error: z.ZodError): Reply {
    return failure(this.#settings.validationStatus, firstMessage(error));
  }

  #one<T>(kind: ItemKind<T>, catalog: Catalog, call: Call): Reply {
    const item = kind.schema.safeParse(call.body);
    if (!item.success) return this.invalid(item.error);
    const written = kind.write(catalog, item.data);
    return written.applied ? envelope({}) : refusal(this.#settings.refusalStatus, written.message);
  }

  #many<T>(kind: ItemKind<T>, catalog: Catalog, call: Call): Reply {
    const frame = batchRequestFrame.safeParse(call.body);
    if (!frame.success) return this.invalid(frame.error);
    const items = frame.data.products;
    call.record.items = items.length;
    if (call.fault?.kind === 'batch-refused') return this.#refuseWhole(kind, catalog, call, items);
    const errors: object[] = [];
    let updated = 0;
    let lost = call.fault?.kind === 'miscount';
    items.forEach((raw, index) => {
      const item = kind.schema.safeParse(raw);
      const written = item.success
        ? undefined
        : { applied: false as const, message: firstMessage(item.error) };
      if (!written && lost) {
        lost = false;
        return;
      }
      const result = written ?? (item.success ? kind.write(catalog, item.data) : undefined);
      if (result?.applied) updated += 1;
      else errors.push({ index, ...pick(raw, kind.named), message: result?.message ?? '' });
    });
    return envelope({ updated, total: items.length, errors });
  }

  /** `batch-refused`: nothing is applied when one item is bad; without a bad one the batch passes. */
  #refuseWhole<T>(kind: ItemKind<T>, catalog: Catalog, call: Call, items: unknown[]): Reply {
    const poison = new Set((call.fault?.poison ?? []).map(String));
    const isBad = (raw: unknown) => {
      const names = Object.values(pick(raw, ['sku', 'externalId']));
      if (names.some((name) => poison.has(String(name)))) return true;
      const item = kind.schema.safeParse(raw);
      return !item.success || !isKnown(catalog, raw);
    };
    if (!items.some(isBad)) return this.#many(kind, catalog, { ...call, fault: undefined });
    return failure(call.fault?.status ?? this.#settings.validationStatus, 'Bad Request');
  }
}

function isKnown(catalog: Catalog, raw: unknown): boolean {
  const { sku, externalId } = pick(raw, ['sku', 'externalId']);
  if (typeof sku === 'number') return catalog.findSku(sku) !== undefined;
  return typeof externalId === 'string' && catalog.findByIntegration(externalId).length > 0;
}

function pick(raw: unknown, keys: readonly string[]): Record<string, unknown> {
  if (typeof raw !== 'object' || raw === null) return {};
  const source: Record<string, unknown> = { ...raw };
  return Object.fromEntries(keys.filter((key) => key in source).map((key) => [key, source[key]]));
}

function firstMessage(error: z.ZodError): string {
  const issue = error.issues[0];
  return issue ? `${issue.path.join('.')} ${issue.message}`.trim() : 'Invalid';
}
