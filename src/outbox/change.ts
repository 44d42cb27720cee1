import type { MappingField } from '../catalog/product.ts';
import { jsonText, mayBeThousands } from '../core/values.ts';
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

/** What a change is for, once known: two changes of one kind with equal keys are for the same thing. */
export interface Target {
  /** `sku:12@sub-1` for a stock, `sku:12` for a product; `ext:…` while the mirror does not know the product. */
  key: string;
  /** Changes of one kind that share it are never under way in two calls at once: the product's id, where known. */
  conflictKey: string;
  sku: string | null;
  productId: string | null;
  subsidiaryId: string | null;
}

/** How a body names its product and branch. */
export interface Address {
  sku?: number;
  externalId?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

/** One place a change may have been meant for, to be shown to a person. */
export interface Candidate {
  sku: string;
  productId: string;
  subsidiaryId: string | null;
  externalId: string | null;
  field: MappingField | null;
}

export type RejectionCode =
  | 'unknown-product'
  | 'unknown-branch'
  | 'not-in-branch'
  | 'ambiguous'
  | 'contradiction' // sku and externalId, or the two names of the branch, do not belong together
  | 'no-external-id'; // a stock named by a sku that has no usable mapping

/** What GET /product is asked for. */
export type ProductQuery = { sku: string } | { externalId: string };

/**
 * - `resolved`: the mirror knows the one target
 * - `as-is`: the mirror cannot say; the platform decides by the change's own words
 * - `needs-read`: the mirror may be out of date; read the product by GET /product, then resolve again
 * - `rejected`: it cannot be determined, with what it may have meant
 */
export type Resolution =
  | { state: 'resolved' | 'as-is'; target: Target; address: Address }
  | { state: 'needs-read'; query: ProductQuery }
  | { state: 'rejected'; code: RejectionCode; message: string; candidates: Candidate[] };

/** The candidates as a person reads them; the first ten. */
export function describeCandidates(candidates: readonly Candidate[]): string {
  const shown = candidates.slice(0, 10).map((each) => {
    const branch = each.subsidiaryId === null ? '' : ` in branch ${each.subsidiaryId}`;
    const mapping = each.externalId === null ? '' : ` (externalId ${each.externalId})`;
    return `sku ${each.sku}${branch}${mapping}`;
  });
  const more = candidates.length > 10 ? ` and ${candidates.length - 10} more` : '';
  return shown.join(', ') + more;
}

/** The target by the change's own words, while or because the mirror cannot say what they stand for. */
export function literalTarget(change: StockChange | ProductChange): Target {
  const product = change.sku === undefined ? `ext:${change.externalId}` : `sku:${change.sku}`;
  const subsidiaryId = 'subsidiaryId' in change ? (change.subsidiaryId ?? null) : null;
  const external = 'subsidiaryExternalId' in change ? change.subsidiaryExternalId : undefined;
  const place = subsidiaryId ?? (external === undefined ? undefined : `ext:${external}`);
  const key = place === undefined ? product : `${product}@${place}`;
  return { key, conflictKey: key, sku: null, productId: null, subsidiaryId };
}

/** The change's own words for its product and branch. */
export function literalAddress(change: StockChange | ProductChange): Address {
  const address: Address = {};
  if (change.sku !== undefined) address.sku = Number(change.sku);
  if (change.externalId !== undefined) address.externalId = change.externalId;
  if ('subsidiaryId' in change && change.subsidiaryId !== undefined) {
    address.subsidiaryId = change.subsidiaryId;
  }
  if ('subsidiaryExternalId' in change && change.subsidiaryExternalId !== undefined) {
    address.subsidiaryExternalId = change.subsidiaryExternalId;
  }
  return address;
}

const COLUMNS: Record<ChangeKind, ReadonlySet<string>> = {
  stock: new Set(STOCK_COLUMNS),
  product: new Set(PRODUCT_COLUMNS),
};

/** Longest id and text that is taken; far above anything real, so that a broken export is named. */
const ID_LENGTH_MAX = 200;
const TEXT_LENGTH_MAX = 100_000;

/** A stock change from what a POS handed over; nothing is rounded, converted or guessed. */
export function readStockChange(value: unknown): ChangeReading<StockChange> {
  const reader = new Reader('stock', value);
  const ids = readIds(reader);
  const qty = reader.number('qty');
  const show = reader.boolean('show');
  const subsidiaryId = reader.id('subsidiaryId');
  const subsidiaryExternalId = reader.id('subsidiaryExternalId');
  if (qty === undefined && !reader.isBad('qty')) {
    reader.fault(
      'nothing-to-change',
      'qty',
      show === undefined
        ? 'qty is missing.'
        : 'qty is missing; the platform takes show only with a quantity.',
    );
  }
  if (reader.faults.length > 0 || qty === undefined) return { fault: join(reader.faults) };
  return {
    change: {
      ...ids,
      qty,
      ...(show === undefined ? {} : { show }),
      ...(subsidiaryId === undefined ? {} : { subsidiaryId }),
      ...(subsidiaryExternalId === undefined ? {} : { subsidiaryExternalId }),
    },
  };
}

/** A product change from what a POS handed over; nothing is rounded, converted or guessed. */
export function readProductChange(value: unknown): ChangeReading<ProductChange> {
  const reader = new Reader('product', value);
  const ids = readIds(reader);
  const price = reader.number('price');
  const name = reader.text('name');
  const description = reader.text('description');
  const show = reader.boolean('show');
  if (name !== undefined && name.trim() === '') reader.fault('bad-value', 'name', 'name is empty.');
  const saysSomething = [price, name, description, show].some((field) => field !== undefined);
  if (!saysSomething && reader.faults.length === 0) {
    reader.fault('nothing-to-change', null, 'None of price, name, description and show is there.');
  }
  if (reader.faults.length > 0) return { fault: join(reader.faults) };
  return {
    change: {
      ...ids,
      ...(price === undefined ? {} : { price }),
      ...(name === undefined ? {} : { name }),
      ...(description === undefined ? {} : { description }),
      ...(show === undefined ? {} : { show }),
    },
  };
}

function readIds(reader: Reader): { externalId?: string; sku?: string } {
  const externalId = reader.id('externalId');
  const sku = reader.sku();
  if (externalId === undefined && sku === undefined && !reader.isBad('externalId') && !reader.isBad('sku')) {
    reader.fault('no-product', null, 'Neither externalId nor sku says which product is meant.');
  }
  return { ...(externalId === undefined ? {} : { externalId }), ...(sku === undefined ? {} : { sku }) };
}

/** Takes the columns of one item one by one and collects what is wrong with them. */
class Reader {
  readonly faults: ChangeFault[] = [];
  readonly #fields: Record<string, unknown>;

  constructor(kind: ChangeKind, value: unknown) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      this.#fields = {};
      this.fault('not-an-object', null, `${show(value)} is not an object with columns.`);
      return;
    }
    this.#fields = value as Record<string, unknown>;
    for (const column of Object.keys(value)) {
      if (COLUMNS[kind].has(column)) continue;
      const known = [...COLUMNS[kind]].join(', ');
      this.fault('unknown-column', column, `${show(column)} is no column of a ${kind} change (${known}).`);
    }
  }

  fault(code: FaultCode, column: string | null, message: string): void {
    // An item that is no object has nothing else to say.
    if (this.faults[0]?.code !== 'not-an-object') this.faults.push({ code, column, message });
  }

  isBad(column: string): boolean {
    return this.faults.some((fault) => fault.column === column);
  }

  number(column: 'qty' | 'price'): number | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isFinite(value)) {
      return this.#bad(column, value, whyNoNumber(value));
    }
    if (value < 0) return this.#bad(column, value, 'is negative');
    if (value > Number.MAX_SAFE_INTEGER) return this.#bad(column, value, 'is too large to be kept exactly');
    return value === 0 ? 0 : value;
  }

  boolean(column: 'show'): boolean | undefined {
    const value = this.#take(column);
    if (value === undefined || typeof value === 'boolean') return value;
    return this.#bad(column, value, 'is neither true nor false');
  }

  text(column: 'name' | 'description'): string | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') return this.#bad(column, value, 'is not a text');
    if (value.length > TEXT_LENGTH_MAX) return this.#bad(column, value, 'is too long');
    return this.#sound(column, value);
  }

  /** Without the blanks around it, which a CHAR column always has. */
  id(column: 'externalId' | 'subsidiaryId' | 'subsidiaryExternalId'): string | undefined {
    const value = this.#take(column);
    if (value === undefined) return undefined;
    if (typeof value !== 'string') return this.#bad(column, value, 'is not a text; write it in quotes');
    const id = value.trim();
    if (id === '') return this.#bad(column, value, 'is empty');
    if (id.length > ID_LENGTH_MAX) return this.#bad(column, value, 'is too long');
    return this.#sound(column, id);
  }

  /** The platform's sku is a number; as text only its plain digits are taken. */
  sku(): string | undefined {
    const taken = this.#take('sku');
    if (taken === undefined) return undefined;
    const value = typeof taken === 'string' ? taken.trim() : taken;
    const number = typeof value === 'string' && /^(0|[1-9]\d*)$/.test(value) ? Number(value) : value;
    if (typeof number === 'number' && Number.isSafeInteger(number) && number >= 0) return String(number);
    return this.#bad('sku', value, 'is not a whole number that can be kept exactly');
  }

  #take(column: string): unknown {
    const value = Object.hasOwn(this.#fields, column) ? this.#fields[column] : undefined;
    if (value !== null) return value;
    this.fault('bad-value', column, `${column} is null; leave it out to keep it as it is.`);
    return undefined;
  }

  #sound(column: string, value: string): string | undefined {
    if (value.includes('\0')) return this.#bad(column, value, 'contains a NUL character');
    if (value.includes('\uFFFD') || !value.isWellFormed()) {
      this.fault('bad-text', column, `${column} ${show(value)} is not valid UTF-8 text.`);
      return undefined;
    }
    return value;
  }

  #bad(column: string, value: unknown, why: string): undefined {
    this.fault('bad-value', column, `${column} ${show(value)} ${why}.`);
    return undefined;
  }
}

/** A comma is the decimal sign of half the world, and its point may group thousands. */
function whyNoNumber(value: unknown): string {
  const text = typeof value === 'string' ? value.trim() : '';
  if (/^[+-]?\d+,\d+$/.test(text))
    return `is not a number; the decimal sign is a point: ${text.replace(',', '.')}`;
  if (!mayBeThousands(text)) return 'is not a number';
  return `may mean ${text.replace('.', '')} or ${Number(text)}; write ${text.replace('.', '')}, or ${text}0`;
}

function join(faults: ChangeFault[]): ChangeFault {
  const [first = { code: 'bad-value', column: null, message: '' } satisfies ChangeFault] = faults;
  return { ...first, message: faults.map((fault) => fault.message).join(' ') };
}

function show(value: unknown): string {
  if (typeof value === 'number') return String(value);
  const text = jsonText(value) ?? 'a value that is nested too deeply';
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** Where an item stands in its file. */
export interface ItemPlace {
  /** Counts the items from 0; the header is none. */
  index: number;
  /** Counts the lines from 1, where the item begins; null in a JSON array. */
  line: number | null;
  /** What the file does not name; `index` then counts on after its last item. */
  unnamed?: string;
}

/** One item as its format gives it, before it is checked as a change. */
export type RawItem = ItemPlace & ({ value: unknown } | { fault: ChangeFault });

/** Takes a file piece by piece and gives the items that are complete. */
export interface ItemParser {
  push(text: string): RawItem[];
  /** Nothing follows any more. */
  end(): RawItem[];
}

export function badText(message: string): { fault: ChangeFault } {
  return { fault: { code: 'bad-text', column: null, message } };
}

export function cut(message: string): { fault: ChangeFault } {
  return { fault: { code: 'cut', column: null, message } };
}
