import * as z from 'zod';
import type { CatalogMapping } from '../catalog/product.ts';
import { jsonText, mayBeThousands } from '../core/values.ts';
import type { ProductChangeItem, StockChangeItem } from '../platform/schemas.ts';
import type { Guard } from './guard-rails.ts';

/** What a change is about; also which pair of endpoints carries it. */
export type ChangeKind = 'product' | 'stock';

/** Longest id and text that is taken; far above anything real, so that a broken export is named. */
const ID_LENGTH_MAX = 200;
const TEXT_LENGTH_MAX = 100_000;
const NOT_UTF8 = 'is not valid UTF-8 text';

/** A message of a schema below: the value and what is wrong with it. The reader puts the column before it. */
const says = (why: string | ((input: unknown) => string)) => ({
  error: ({ input }: { input?: unknown }) => `${show(input)} ${typeof why === 'string' ? why : why(input)}`,
});

const sound = (text: z.ZodString) =>
  text
    .regex(
      /^[^\0\uFFFD]*$/,
      says((input) => (String(input).includes('\0') ? 'contains a NUL character' : NOT_UTF8)),
    )
    .refine((value) => value.isWellFormed(), says(NOT_UTF8));

/** Without the blanks around it, which a CHAR column always has. */
const id = sound(
  z
    .string(says('is not a text; write it in quotes'))
    .regex(/\S/, says('is empty'))
    .trim()
    .max(ID_LENGTH_MAX, says('is too long')),
);
const notWhole = says('is not a whole number that can be kept exactly');
/** The platform's sku is a number; as text only its plain digits are taken. */
const sku = z
  .union(
    [
      z.number().int(notWhole).min(0, notWhole),
      z
        .string()
        .trim()
        .regex(/^(0|[1-9]\d*)$/, notWhole)
        .refine((digits) => Number.isSafeInteger(Number(digits)), notWhole)
        .describe('Digits without leading zeros'),
    ],
    notWhole,
  )
  .transform(String);
const number = z
  .number(says(whyNoNumber))
  .min(0, says('is negative'))
  .max(Number.MAX_SAFE_INTEGER, says('is too large to be kept exactly'))
  .overwrite((value) => (value === 0 ? 0 : value));
const text = sound(z.string(says('is not a text')).max(TEXT_LENGTH_MAX, says('is too long')));
const flag = z.boolean(says('is neither true nor false'));

/**
 * A quantity as a POS hands it over. Names at least one of `externalId` and `sku`; the platform's stock
 * endpoints take only externalId, so a sku is looked up in the mirror. The branch is needed only where the
 * product is in several.
 */
export const stockItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  qty: number.describe('New stock quantity'),
  show: flag.exactOptional().describe('Stock visibility in the branch; left as it is when missing'),
  subsidiaryId: id.exactOptional().describe('Branch, where the product is in several'),
  subsidiaryExternalId: id.exactOptional(),
});
export type StockChange = z.output<typeof stockItem>;

/** Price, texts or visibility as a POS hands them over, with at least one of them present. */
export const productItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  price: number.exactOptional(),
  name: text.regex(/\S/, { error: 'is empty' }).exactOptional(),
  description: text.exactOptional().describe('An empty text clears it'),
  show: flag.exactOptional().describe('Visibility of the whole product'),
});
export type ProductChange = z.output<typeof productItem>;

/** A change in its own words. */
export type Change = { kind: 'stock'; change: StockChange } | { kind: 'product'; change: ProductChange };

/**
 * What was handed over by any way in: a change, or an item that could not be read; with its `value` where nobody is
 * there to be told. `reference` is what its giver knows it by; `asOfSeq`: the newest order event that a quantity contains,
 * where that is not the newest of all; `handedAt`: when it was handed over, where that was before it is taken in.
 */
export type HandedOver = { reference?: string | null; asOfSeq?: number; handedAt?: string | null } & (
  | Change
  | { kind: ChangeKind; fault: ChangeFault; value?: unknown }
);

/**
 * An acknowledgement of an order: as of the event `seq` of the feed; without it, as of the newest one there was when it
 * was handed over (`handedAt`; left out: now).
 */
export type Acknowledgement =
  | string
  | { orderId: string; seq?: number | null | undefined; handedAt?: string | null | undefined };

/** The branch with a tillsync of its own that acknowledges. */
export interface AckBranch {
  /** As orders name it. */
  name: string;
  subsidiaryId: string | null;
}

export interface AckResult {
  orderId: string;
  /**
   * `new`: acknowledged now, or again after an edit; `known`: it was before; `unheard`: the mirror has no such order (yet);
   * `rejected`: nothing was booked.
   */
  state: 'new' | 'known' | 'unheard' | 'rejected';
  /** Why it was rejected. */
  message?: string;
}

/** An acknowledgement of a backup, under the key that it had; without `seq`, as of the newest event. */
export interface RestoredAck {
  orderId: string;
  key: string;
  seq?: number | null | undefined;
}

/** Why one item cannot be taken. Nothing else is affected by it. */
export interface ChangeFault {
  code:
    | 'not-an-object'
    | 'unknown-column'
    | 'no-product' // neither sku nor externalId
    | 'nothing-to-change'
    | 'bad-value'
    | 'bad-text' // not UTF-8, NUL, or a line that does not fit its header
    | 'cut'; // the input ends in the middle
  /** The column at fault, where it is one. */
  column: string | null;
  /** One or more sentences for the person who made the item. */
  message: string;
}

/** A change as it will be sent, with the target it is for. */
export type ChangeBody = ProductChangeItem | StockChangeItem;

/** Keys of a body that say which product and branch; all others are values. */
export const ADDRESS_KEYS = ['sku', 'externalId', 'subsidiaryId', 'subsidiaryExternalId'] as const;

/** What a change is for, once known: two changes of one kind with equal keys are for the same thing. */
export interface Target {
  /** `sku:12@sub-1` for a stock, `sku:12` for a product; `ext:…` while the mirror does not know the product. */
  key: string;
  /** Changes of one kind that share it are never under way in two calls at once: the product's id, where known. */
  conflictKey: string;
  sku: string | null;
  subsidiaryId: string | null;
}

/** How a body names its product and branch. */
export interface Address {
  sku?: number;
  externalId?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

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
  | {
      state: 'rejected';
      code:
        | 'unknown-product'
        | 'unknown-branch'
        | 'not-in-branch'
        | 'ambiguous'
        | 'contradiction' // sku and externalId, or the two names of the branch, do not belong together
        | 'no-external-id'; // a stock named by a sku that has no usable mapping
      message: string;
      /** The places that it may have been meant for. */
      candidates: CatalogMapping[];
    };

export type OutboxState = 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';

/** The way in that a change took. */
export type ChangeSource = 'inbox' | 'http' | 'cli' | 'hold-back' | 'branch';

/** A change of the outbox as people and the POS see it. */
export interface OutboxEntry {
  changeId: number;
  kind: ChangeKind;
  /** Key of its target. */
  target: string;
  body: ChangeBody;
  state: OutboxState;
  /** How often it was sent. */
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  /** The guard rail that holds it for a person. */
  heldGuard: Guard | null;
  source: ChangeSource;
  /** Who handed it over, such as `inbox`, `cli ana` or `http 127.0.0.1`; null: taken before this was noted. */
  origin: string | null;
  reference: string | null;
  /** How many earlier values for the target went into this one while it waited. */
  replaced: number;
  /** The change that took its place. */
  supersededBy: number | null;
}

/** A change with what the rules of the queue need of it. */
export interface OutboxChange extends OutboxEntry {
  conflictKey: string;
  /** null while the mirror does not know the target. */
  sku: string | null;
  subsidiaryId: string | null;
  /** Whether the mirror knows the target; else the change waits for a reading, or is sent by its own words. */
  basis: 'mirror' | 'as-is' | 'needs-read';
  /** Number of the hand-over; they rise with time. */
  version: number;
  /** Of each field of the body: the hand-over that brought it. */
  versions: Readonly<Record<string, number>>;
  /** Newest event of the order feed when it was handed over. */
  asOfSeq: number;
  /** Whose turn it goes by: its branch as far as it is known; '' for none. */
  branch: string;
  /** Its place in the line of its branch: first by `priority`, then by `queueSeq`, lower first. */
  priority: number;
  queueSeq: number;
  /** Of a stock: the quantity as it was sent, and the newest event of the order feed then. */
  sentQty: number | null;
  sentAsOfSeq: number | null;
  /** Of a stock: when it was set to zero, for the guard rail. */
  zeroedAt: string | null;
}

/** One change of a call, as it is sent; `attempts`: how often it was before. */
export type BatchItem = Pick<OutboxChange, 'changeId' | 'target' | 'body' | 'attempts'>;

/** What became of a sent change. */
export interface Answer {
  changeId: number;
  /** `retry`: unknown or not arrived; it waits again, under newer values. */
  state: 'done' | 'rejected' | 'retry';
  /** Of a refusal: the platform's. */
  message?: string | undefined;
  /** It did not arrive when it was sent alone either, so it waits behind all others. */
  isAlone?: boolean;
}

/** The candidates as a person reads them; the first ten. */
export function describeCandidates(candidates: readonly CatalogMapping[]): string {
  const shown = candidates
    .slice(0, 10)
    .map(
      ({ sku, subsidiaryId, externalId }) =>
        `sku ${sku} in branch ${subsidiaryId} (externalId ${externalId})`,
    );
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
  return { key, conflictKey: key, sku: null, subsidiaryId };
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

const SCHEMAS: Record<ChangeKind, [column: string, schema: z.ZodType][]> = {
  stock: Object.entries(stockItem.shape),
  product: Object.entries(productItem.shape),
};
/** The names that an item may have, by kind. */
export const COLUMNS: Record<ChangeKind, readonly string[]> = {
  stock: Object.keys(stockItem.shape),
  product: Object.keys(productItem.shape),
};

/**
 * A change from what a POS handed over; nothing is rounded, converted or guessed. Reads the columns one by one, so that
 * every fault of the item is named.
 */
export function readChange(kind: ChangeKind, value: unknown): HandedOver {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const message = `${show(value)} is not an object with columns.`;
    return { kind, fault: { code: 'not-an-object', column: null, message } };
  }
  const faults: ChangeFault[] = [];
  const fault = (code: ChangeFault['code'], column: string | null, message: string) =>
    faults.push({ code, column, message });
  for (const column of Object.keys(value)) {
    if (COLUMNS[kind].includes(column)) continue;
    const message = `${show(column)} is no column of a ${kind} change (${COLUMNS[kind].join(', ')}).`;
    fault('unknown-column', column, message);
  }
  const change: Record<string, unknown> = {};
  const isMissing = (column: string) => !(column in change) && !faults.some((each) => each.column === column);
  for (const [column, schema] of SCHEMAS[kind]) {
    const given = Object.hasOwn(value, column) ? (value as Record<string, unknown>)[column] : undefined;
    if (given === null) fault('bad-value', column, `${column} is null; leave it out to keep it as it is.`);
    else if (given !== undefined) {
      const { data, error } = schema.safeParse(given);
      const why = error?.issues[0]?.message;
      if (why === undefined) change[column] = data;
      else fault(why.endsWith(NOT_UTF8) ? 'bad-text' : 'bad-value', column, `${column} ${why}.`);
    }
    if (column === 'sku' && isMissing('externalId') && isMissing('sku')) {
      fault('no-product', null, 'Neither externalId nor sku says which product is meant.');
    }
  }
  if (kind === 'stock' && isMissing('qty')) {
    const message =
      'show' in change ? 'qty is missing; the platform takes show only with a quantity.' : 'qty is missing.';
    fault('nothing-to-change', 'qty', message);
  }
  const says = ['price', 'name', 'description', 'show'].some((column) => column in change);
  if (kind === 'product' && !says && faults.length === 0) {
    fault('nothing-to-change', null, 'None of price, name, description and show is there.');
  }
  const [first] = faults;
  if (!first) return { kind, change } as Change;
  return { kind, fault: { ...first, message: faults.map(({ message }) => message).join(' ') } };
}

/** A comma is the decimal sign of half the world, and its point may group thousands. */
function whyNoNumber(value: unknown): string {
  const text = typeof value === 'string' ? value.trim() : '';
  if (/^[+-]?\d+,\d+$/.test(text))
    return `is not a number; the decimal sign is a point: ${text.replace(',', '.')}`;
  if (!mayBeThousands(text)) return 'is not a number';
  return `may mean ${text.replace('.', '')} or ${Number(text)}; write ${text.replace('.', '')}, or ${text}0`;
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
