import * as z from 'zod';
import type { CatalogMapping } from '../catalog/product.ts';
import { jsonText, mayBeThousands } from '../core/values.ts';
import type { ProductChangeItem, StockChangeItem } from '../platform/schemas.ts';
import type { Guard } from './guards.ts';

/** The subject of a change, which also decides its pair of endpoints. */
export type ChangeKind = 'product' | 'stock';

/** Longest accepted id and text. They are far above real ones, so that a faulty export is reported. */
const ID_LENGTH_MAX = 200;
const TEXT_LENGTH_MAX = 100_000;
const REFERENCE_LENGTH_MAX = 1_000;
const NOT_UTF8 = 'is not valid UTF-8 text';

/** Makes a schema's message: the value and its fault. The reader puts the column before it. */
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

/** Blanks around an id are removed, because a CHAR column always has them. */
const id = sound(
  z
    .string(says('is not a text; write it in quotes'))
    .regex(/\S/, says('is empty'))
    .trim()
    .max(ID_LENGTH_MAX, says('is too long')),
);
const notWhole = says('is not a whole number that can be kept exactly');
/** Schema of a sku, which is a number at the platform. As text, only plain digits are accepted. */
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
const reference = sound(
  z.string(says('is not a text; write it in quotes')).max(REFERENCE_LENGTH_MAX, says('is too long')),
)
  .exactOptional()
  .describe('Yours, to ask for what became of it; never sent to the platform');
const flag = z.boolean(says('is neither true nor false'));

/**
 * A quantity as a POS submits it, with `externalId`, `sku` or both. The platform's stock endpoints accept only
 * externalId, so a sku is looked up in the mirror. The branch is needed only if the product is in several.
 */
export const stockItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  qty: number.describe('New stock quantity'),
  show: flag.exactOptional().describe('Stock visibility in the branch; left as it is when missing'),
  subsidiaryId: id.exactOptional().describe('Branch, where the product is in several'),
  subsidiaryExternalId: id.exactOptional(),
  reference,
});
export type StockChange = Omit<z.output<typeof stockItem>, 'reference'>;

/** A price, text or visibility as a POS submits it; at least one of them is present. */
export const productItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  price: number.exactOptional(),
  name: text.regex(/\S/, { error: 'is empty' }).exactOptional(),
  description: text.exactOptional().describe('An empty text clears it'),
  show: flag.exactOptional().describe('Visibility of the whole product'),
  reference,
});
export type ProductChange = Omit<z.output<typeof productItem>, 'reference'>;

/** A change as it was submitted. */
export type Change = { kind: 'stock'; change: StockChange } | { kind: 'product'; change: ProductChange };

/**
 * A submitted item of any interface: a change, or an unreadable item (with its `value` if nobody reads the answer).
 * `reference` is the submitter's name for it. `asOfSeq` is the newest order event that a quantity contains, if not
 * the newest of all. `handedAt` is the time of submission, if that was before now.
 */
export type SubmittedChange = { reference?: string | null; asOfSeq?: number; handedAt?: string | null } & (
  | Change
  | { kind: ChangeKind; fault: ChangeFault; value?: unknown }
);

/**
 * An acknowledgement of an order up to the event `seq`. Without `seq`, up to the newest event at `handedAt` (left
 * out: now).
 */
export type Acknowledgement =
  | string
  | { orderId: string; seq?: number | null | undefined; handedAt?: string | null | undefined };

/** The branch, with its own tillsync, that acknowledges. */
export interface AckBranch {
  /** Name of the product as orders have it. */
  name: string;
  subsidiaryId: string | null;
}

export interface AckResult {
  orderId: string;
  /**
   * `new`: acknowledged now, or again after an edit. `known`: acknowledged before. `unheard`: the mirror has no such
   * order yet. `rejected`: nothing was booked.
   */
  state: 'new' | 'known' | 'unheard' | 'rejected';
  /** Reason why the acknowledgement was rejected. */
  message?: string;
}

/** An acknowledgement from a backup, under its old key. Without `seq`, up to the newest event. */
export interface RestoredAck {
  orderId: string;
  key: string;
  seq?: number | null | undefined;
}

/** Why one item is refused. Other items are not affected. */
export interface ChangeFault {
  code:
    | 'not-an-object'
    | 'unknown-column'
    | 'no-product' // neither sku nor externalId
    | 'nothing-to-change'
    | 'bad-value'
    | 'bad-text' // not UTF-8, NUL, or a line that does not match its header
    | 'cut'; // the input ends in the middle
  /** The faulty column, if the fault is in one. */
  column: string | null;
  /** Sentences for the person who made the item. */
  message: string;
}

/** The body of a change as it will be sent. */
export type ChangeBody = ProductChangeItem | StockChangeItem;

/** Keys of a body that are its address (product and branch). All others are values. */
export const ADDRESS_KEYS = ['sku', 'externalId', 'subsidiaryId', 'subsidiaryExternalId'] as const;

/** The target of a change. Two changes of one kind with equal keys have the same target. */
export interface Target {
  /** `sku:12@sub-1` for a stock, `sku:12` for a product; `ext:…` while the mirror does not know the product. */
  key: string;
  /** The product's id, if known. Changes of one kind with the same conflict key are never in two calls at once. */
  conflictKey: string;
  sku: string | null;
  subsidiaryId: string | null;
}

/** The ids of a body for its product and branch. */
export interface Address {
  sku?: number;
  externalId?: string;
  subsidiaryId?: string;
  subsidiaryExternalId?: string;
}

/** The id for GET /product. */
export type ProductQuery = { sku: string } | { externalId: string };

/**
 * - `resolved`: the mirror knows the one target
 * - `as-is`: the mirror does not know; the platform decides by the change's own ids
 * - `needs-read`: the mirror may be outdated; read the product by GET /product, then resolve again
 * - `rejected`: the target is ambiguous or missing, with the candidates
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
        | 'contradiction' // sku and externalId, or the branch's two ids, contradict each other
        | 'no-external-id'; // a stock given by a sku that has no usable mapping
      message: string;
      /** Stocks or products that the change may have meant. */
      candidates: CatalogMapping[];
    };

export type OutboxState = 'pending' | 'sending' | 'done' | 'rejected' | 'superseded';

/** The interface through which a change was submitted. */
export type ChangeSource = 'inbox' | 'http' | 'cli' | 'hold-back' | 'branch';

/** A change of the outbox as people and the POS see it. */
export interface OutboxEntry {
  changeId: number;
  kind: ChangeKind;
  /** Key of its target. */
  target: string;
  body: ChangeBody;
  state: OutboxState;
  /** Number of times the change was sent. */
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  /** Guard that holds the change for a person; null if none does. */
  heldGuard: Guard | null;
  source: ChangeSource;
  /** Who submitted it, such as `inbox`, `cli ana` or `http 127.0.0.1`; null in rows from before this column. */
  origin: string | null;
  reference: string | null;
  /** Number of earlier values of the target that this change replaced while it waited. */
  replaced: number;
  /** Id of the change that replaced this one; null if none did. */
  supersededBy: number | null;
  /** Place in the feed of settled changes; null while it waits. */
  settledSeq: number | null;
}

/** A change with the fields that the queue's rules need. */
export interface OutboxChange extends OutboxEntry {
  conflictKey: string;
  /** null while the mirror does not know the target. */
  sku: string | null;
  subsidiaryId: string | null;
  /** Whether the mirror knows the target. Otherwise the change waits for a read, or is sent with its own ids. */
  basis: 'mirror' | 'as-is' | 'needs-read';
  /** Number of the submission; rises with time. */
  version: number;
  /** For each field of the body, the version that set it. */
  versions: Readonly<Record<string, number>>;
  /** Newest event of the order feed when it was submitted. */
  asOfSeq: number;
  /** Branch whose turn sends the change; '' if it is unknown. */
  branch: string;
  /** Position in its branch's queue: first by `priority`, then by `queueSeq`, lower first. */
  priority: number;
  queueSeq: number;
  /** The quantity of a stock that was sent, and the newest event of the order feed at that time. */
  sentQty: number | null;
  sentAsOfSeq: number | null;
  /** Time at which the stock was set to zero, for the guard; null for any other change. */
  zeroedAt: string | null;
}

/** One change of a call as it is sent; `attempts` counts the earlier sendings. */
export type BatchItem = Pick<OutboxChange, 'changeId' | 'target' | 'body' | 'attempts'>;

/** The outcome of a sent change. */
export interface Answer {
  changeId: number;
  /** `retry` means unknown or not arrived. The change waits again, and newer values replace it. */
  state: 'done' | 'rejected' | 'retry';
  /** The platform's message for a refusal. */
  message?: string | undefined;
  /** True if it also failed when sent alone; it then waits behind all others. */
  isAlone?: boolean;
}

/** Describes the first ten candidates for a person. */
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

/** Returns the target named by the change's own ids, for when the mirror cannot resolve them. */
export function literalTarget(change: StockChange | ProductChange): Target {
  const product = change.sku === undefined ? `ext:${change.externalId}` : `sku:${change.sku}`;
  const subsidiaryId = 'subsidiaryId' in change ? (change.subsidiaryId ?? null) : null;
  const external = 'subsidiaryExternalId' in change ? change.subsidiaryExternalId : undefined;
  const place = subsidiaryId ?? (external === undefined ? undefined : `ext:${external}`);
  const key = place === undefined ? product : `${product}@${place}`;
  return { key, conflictKey: key, sku: null, subsidiaryId };
}

/** Returns the change's own ids of its product and branch. */
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
/** Allowed columns of an item, by kind. */
export const COLUMNS: Record<ChangeKind, readonly string[]> = {
  stock: Object.keys(stockItem.shape),
  product: Object.keys(productItem.shape),
};

/**
 * Reads a submitted change; nothing is rounded, converted or guessed. Each column is read alone, so that every fault
 * is reported.
 */
export function readChange(kind: ChangeKind, value: unknown): SubmittedChange {
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
  const { reference: named, ...values } = change;
  if (!first)
    return { kind, change: values, ...(named !== undefined && { reference: named }) } as SubmittedChange;
  return { kind, fault: { ...first, message: faults.map(({ message }) => message).join(' ') } };
}

/** In many countries the comma is the decimal sign and the point groups thousands. */
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

/** The position of an item in its file. */
export interface SourceLine {
  /** Index from 0, without the header. */
  index: number;
  /** Line from 1 at which the item begins; null in a JSON array. */
  line: number | null;
  /** A stock that the file does not contain; `index` continues after the last item. */
  unnamed?: string;
}

/** An item as its format delivers it, not yet checked as a change. */
export type RawItem = SourceLine & ({ value: unknown } | { fault: ChangeFault });

/** Takes a file chunk by chunk and returns the complete items. */
export interface ItemParser {
  push(text: string): RawItem[];
  /** Called at the end of the input; returns the remaining items. */
  end(): RawItem[];
}

export function badText(message: string): { fault: ChangeFault } {
  return { fault: { code: 'bad-text', column: null, message } };
}

export function cut(message: string): { fault: ChangeFault } {
  return { fault: { code: 'cut', column: null, message } };
}
