import * as z from 'zod';
import type { CatalogMapping } from '../../catalog/product.ts';
import { formatDuration, isoUtc } from '../../core/time.ts';
import { jsonText, mayBeThousands } from '../../core/values.ts';
import { timeReader } from '../../orders/merging/field-values.ts';
import type { ProductChangeItem, StockChangeItem } from '../../platform/schemas.ts';
import type { Guard } from './guards.ts';

/**
 * What a change is about: values of a product or the stock of one branch. It decides which endpoints send the change.
 */
export type ChangeKind = 'product' | 'stock';

/** Longest accepted id and text, in characters. Real ones are far shorter, so a longer one is a faulty export. */
const ID_LENGTH_MAX = 200;
const TEXT_LENGTH_MAX = 100_000;
const REFERENCE_LENGTH_MAX = 1_000;
const NOT_UTF8 = 'is not valid UTF-8 text';

/**
 * Returns a schema's error message, which shows the value and says what is wrong with it. `readChange` puts the name of
 * the column before the message.
 */
const says = (why: string | ((input: unknown) => string)) => ({
  error: ({ input }: { input?: unknown }) => `${show(input)} ${typeof why === 'string' ? why : why(input)}`,
});

/**
 * Patterns of a text, and of a text that is not only blanks. Each schema has one pattern, because generators of clients
 * make no type of a list of patterns.
 */
const ANY = /^[^\0\uFFFD]*$/;
const FILLED = /^\s*[^\s\0\uFFFD][^\0\uFFFD]*$/;

const whyUnsound = (input: unknown) => {
  const value = String(input);
  if (value.includes('\0')) return 'contains a NUL character';
  return value.includes('\uFFFD') ? NOT_UTF8 : 'is empty';
};
const wellFormed = (text: z.ZodString) => text.refine((value) => value.isWellFormed(), says(NOT_UTF8));

/** Removes blanks around an id, because a CHAR column of a database pads its values with blanks. */
const id = wellFormed(
  z
    .string(says('is not a text; write it in quotes'))
    .regex(FILLED, says(whyUnsound))
    .trim()
    .max(ID_LENGTH_MAX, says('is too long')),
);
const notWhole = says('is not a whole number that can be kept exactly');
/** Schema of a sku, which is a number on the platform. A sku given as text may contain only digits. */
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
/** A count. A till that sells before a delivery is booked counts below zero; the platform then gets 0. */
const count = z
  .number(says(whyNoNumber))
  .min(-Number.MAX_SAFE_INTEGER, says('is too large to be kept exactly'))
  .max(Number.MAX_SAFE_INTEGER, says('is too large to be kept exactly'))
  .overwrite((value) => (value === 0 ? 0 : value));
const longText = z.string(says('is not a text')).max(TEXT_LENGTH_MAX, says('is too long'));
const reference = wellFormed(
  z
    .string(says('is not a text; write it in quotes'))
    .max(REFERENCE_LENGTH_MAX, says('is too long'))
    .regex(ANY, says(whyUnsound)),
)
  .exactOptional()
  .describe('Yours, to ask for what became of it; never sent to the platform');
const countedAt = wellFormed(
  z
    .string(says('is not a text; write a time such as 2026-11-28T09:55:00-03:00'))
    .max(ID_LENGTH_MAX, says('is too long'))
    .regex(FILLED, says(whyUnsound))
    .trim(),
)
  .exactOptional()
  .describe(
    'When it was counted, if that is not now: the later count wins, whenever it arrives. ISO 8601; without a zone, a time ' +
      'of the shop\u2019s clock. Not ahead of this machine\u2019s clock, and not older than a day',
  );
const flag = z.boolean(says('is neither true nor false'));

/**
 * A quantity as a POS submits it, with `externalId`, `sku` or both. The platform's stock endpoints accept only
 * externalIds, so tillsync looks a sku up in the mirror. The branch is needed only if several branches have the
 * product.
 */
export const stockItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  qty: count.describe('Quantity as counted; below zero, the platform gets 0'),
  show: flag.exactOptional().describe('Stock visibility in the branch; left as it is when missing'),
  subsidiaryId: id.exactOptional().describe('Branch, where the product is in several'),
  subsidiaryExternalId: id.exactOptional(),
  counted_at: countedAt,
  reference,
});
export type StockChange = Omit<z.output<typeof stockItem>, 'reference' | 'counted_at'>;

/** A price, text or visibility as a POS submits it. At least one value is present. */
export const productItem = z.strictObject({
  externalId: id.exactOptional().describe('Integration id of the product'),
  sku: sku.exactOptional(),
  price: number.exactOptional(),
  name: wellFormed(longText.regex(FILLED, says(whyUnsound))).exactOptional(),
  description: wellFormed(longText.regex(ANY, says(whyUnsound)))
    .exactOptional()
    .describe('An empty text clears it'),
  show: flag.exactOptional().describe('Visibility of the whole product'),
  reference,
});
export type ProductChange = Omit<z.output<typeof productItem>, 'reference'>;

/** A change as it was submitted. */
export type Change = { kind: 'stock'; change: StockChange } | { kind: 'product'; change: ProductChange };

/**
 * An item that a POS or person submitted: a change, or an unreadable item. `reference` is the submitter's name for
 * the item. `asOfSeq` is the newest order event that the quantity includes; if left out, the newest of all.
 * `handedAt` is the time of submission, if it is in the past. `countedAt` is the time of a count as the submitter gave
 * it; `withCountTime` reads it.
 */
export type SubmittedChange = {
  reference?: string | null;
  asOfSeq?: number;
  handedAt?: string | null;
  countedAt?: string | null;
} & (Change | { kind: ChangeKind; fault: ChangeFault; value?: unknown });

/**
 * An acknowledgement of an order, up to the event `seq`. Without `seq`, it covers the events until `handedAt`, or
 * until now if `handedAt` is left out. `without` has the numbers of the lines, from 1, that the POS has not booked.
 */
export type Acknowledgement =
  | string
  | {
      orderId: string;
      seq?: number | null | undefined;
      handedAt?: string | null | undefined;
      without?: readonly number[] | undefined;
    };

/** Maximum number of lines that one acknowledgement may leave out. */
export const WITHOUT_MAX = 200;

/** Branch, with its own tillsync, whose POS acknowledges an order. */
export interface AckBranch {
  /** Name of the branch as orders have it. */
  name: string;
  subsidiaryId: string | null;
}

export interface AckResult {
  orderId: string;
  /**
   * - `new`: acknowledged now, for the first time or after an edit
   * - `known`: acknowledged before
   * - `unheard`: the mirror does not have the order yet
   * - `rejected`: nothing was booked
   */
  state: 'new' | 'known' | 'unheard' | 'rejected';
  /** Reason why the acknowledgement was rejected. */
  message?: string;
}

/** An acknowledgement from a backup, with its former `change_key`. Without `seq`, it covers all events of the order. */
export interface RestoredAck {
  orderId: string;
  key: string;
  seq?: number | null | undefined;
  without?: readonly number[] | undefined;
}

/** Reason why one item is rejected. Other items are not affected. */
export interface ChangeFault {
  code:
    | 'not-an-object'
    | 'unknown-column'
    | 'no-product' // neither sku nor externalId
    | 'nothing-to-change'
    | 'bad-value'
    | 'bad-text' // not UTF-8, contains NUL, or a line that does not match the header
    | 'cut' // the input ends within the item
    | 'same-article' // other rows of the file or request are of the same article
    | 'twin'; // an unknown id that may be the misspelt id of a missing stock
  /** The faulty column; null if the fault is in none. */
  column: string | null;
  /** Indexes of all rows of the article, for `same-article`. */
  rows?: readonly number[];
  /** Sentences for the person who made the item. */
  message: string;
}

/** The body of a change as it will be sent. */
export type ChangeBody = ProductChangeItem | StockChangeItem;

/** Keys of a body that identify product and branch. All other keys are values. */
export const ADDRESS_KEYS = ['sku', 'externalId', 'subsidiaryId', 'subsidiaryExternalId'] as const;

/** The product or stock that a change sets. Two changes of one kind with equal keys have the same target. */
export interface Target {
  /** `sku:12@sub-1` for a stock, `sku:12` for a product; `ext:…` while the mirror does not know the product. */
  key: string;
  /**
   * Two changes of one kind with equal conflict keys are never in two calls at once. For a known product, it is the
   * product's id.
   */
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

/** The id by which GET /product finds a product. */
export type ProductQuery = { sku: string } | { externalId: string };

/**
 * - `resolved`: the mirror knows exactly one target
 * - `as-is`: the mirror does not know the target; the change is sent with its own ids, and the platform decides
 * - `needs-read`: the mirror may be outdated; the product is read by GET /product, then the change is resolved again
 * - `rejected`: the target is ambiguous or missing; the candidates are listed
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
        | 'no-external-id'; // the stock was given by a sku without a usable mapping
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
  /** Key of the change's target. */
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
  /** Who submitted the change, such as `inbox`, `cli ana` or `http 127.0.0.1`; null in rows older than the column. */
  origin: string | null;
  reference: string | null;
  /** When the count was made (ISO 8601 UTC), if the submitter gave it; null otherwise. */
  countedAt: string | null;
  /** Number of earlier values that this change replaced while they waited. */
  replaced: number;
  /** Id of the change that replaced this one; null if none did. */
  supersededBy: number | null;
  /** Place in the feed of settled changes; null while the change is not settled. */
  settledSeq: number | null;
}

/** A change with the fields that the queue's rules need. */
export interface OutboxChange extends OutboxEntry {
  conflictKey: string;
  /** null while the mirror does not know the target. */
  sku: string | null;
  subsidiaryId: string | null;
  /**
   * - `mirror`: the mirror knows the target
   * - `as-is`: the target is unknown; the change is sent with its own ids
   * - `needs-read`: the change waits until its product has been read
   */
  basis: 'mirror' | 'as-is' | 'needs-read';
  /** Number of the submission. Later submissions have higher numbers. */
  version: number;
  /** Newest event of the order feed when the change was submitted. */
  asOfSeq: number;
  /** When the newest value was handed over, ISO 8601 UTC. */
  handedAt: string;
  /** Branch in whose turn the change is sent; '' if the branch is unknown. */
  branch: string;
  /** Position in the branch's queue: by `priority`, then by `queueSeq`, lower numbers first. */
  priority: number;
  queueSeq: number;
  /** The call that has the change; null if none does. */
  callId: number | null;
  /** Quantity of the stock that was sent, and the newest event of the order feed at that time. */
  sentQty: number | null;
  sentAsOfSeq: number | null;
  /** Time at which the change set the stock to zero, for the guard `zero-items`; null for any other change. */
  zeroedAt: string | null;
  /** JSON of the ids by which the POS named a stock, without a sku (`StockName`); null if it named the sku. */
  named: string | null;
}

/** The id, and the branch if it was given, by which a POS named a stock. A count by an id belongs to that id. */
export type StockName = Pick<StockChange, 'subsidiaryId' | 'subsidiaryExternalId'> & { externalId: string };

/** Returns the name of a stock that a change gives without its sku; null for any other change. */
export function stockNameOf(item: SubmittedChange): StockName | null {
  if (!('change' in item) || item.kind !== 'stock') return null;
  const { sku, externalId, subsidiaryId, subsidiaryExternalId } = item.change;
  if (sku !== undefined || externalId === undefined) return null;
  return {
    externalId,
    ...(subsidiaryId !== undefined && { subsidiaryId }),
    ...(subsidiaryExternalId !== undefined && { subsidiaryExternalId }),
  };
}

/**
 * Returns the body by which another tillsync, or this one later, learns what the POS named: a count by sku keeps the
 * sku. The externalId in its body was chosen here, and the count does not belong to it.
 */
export function inWordsOfPos({
  kind,
  body,
  sku,
  named,
}: Pick<OutboxChange, 'kind' | 'body' | 'sku' | 'named'>): object {
  if (kind !== 'stock' || named !== null || sku === null || !/^(0|[1-9]\d{0,14})$/.test(sku)) return body;
  const { externalId: _, ...rest } = body;
  return { sku, ...rest };
}

/** One change of a call. `attempts` is the number of earlier sendings. */
export type BatchItem = Pick<OutboxChange, 'changeId' | 'target' | 'body' | 'attempts'>;

/** The outcome of a sent change. */
export interface Answer {
  changeId: number;
  /**
   * `retry` means that the outcome is unknown or the change did not arrive. The change waits again, and newer values of
   * its fields win.
   */
  state: 'done' | 'rejected' | 'retry';
  /** The platform's message for a refusal. */
  message?: string | undefined;
  /** True if the change also failed when sent alone. It then waits behind all other changes. */
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

/** Returns the target by the change's own ids. Used if the mirror cannot resolve them. */
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
/** Columns that an item may have. */
export const COLUMNS: Record<ChangeKind, readonly string[]> = {
  stock: Object.keys(stockItem.shape),
  product: Object.keys(productItem.shape),
};

/**
 * Reads a submitted change without rounding, converting or guessing values. Each column is read alone, so that every
 * fault is reported.
 */
export function readChange(kind: ChangeKind, value: unknown): SubmittedChange {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    const message = `${show(value)} is not an object with columns.`;
    return { kind, fault: { code: 'not-an-object', column: null, message } };
  }
  const given = kind === 'stock' && 'countedAt' in value ? renamed(value) : value;
  const faults: ChangeFault[] = [];
  const fault = (code: ChangeFault['code'], column: string | null, message: string) =>
    faults.push({ code, column, message });
  for (const column of Object.keys(given)) {
    if (COLUMNS[kind].includes(column)) continue;
    const message = `${show(column)} is no column of a ${kind} change (${COLUMNS[kind].join(', ')}).`;
    fault('unknown-column', column, message);
  }
  const change: Record<string, unknown> = {};
  const isMissing = (column: string) => !(column in change) && !faults.some((each) => each.column === column);
  for (const [column, schema] of SCHEMAS[kind]) {
    const said = Object.hasOwn(given, column) ? (given as Record<string, unknown>)[column] : undefined;
    if (said === null) fault('bad-value', column, `${column} is null; leave it out to keep it as it is.`);
    else if (said !== undefined) {
      const { data, error } = schema.safeParse(said);
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
  const { reference: named, counted_at: counted, ...values } = change;
  if (!first) {
    return {
      kind,
      change: values,
      ...(named !== undefined && { reference: named }),
      ...(counted !== undefined && { countedAt: counted }),
    } as SubmittedChange;
  }
  return { kind, fault: { ...first, message: faults.map(({ message }) => message).join(' ') } };
}

/** Returns an item with `counted_at` for `countedAt`, as the other names of an item would have it spelt. */
function renamed({ countedAt: said, ...rest }: Record<string, unknown>): Record<string, unknown> {
  return Object.hasOwn(rest, 'counted_at') ? { ...rest, countedAt: said } : { ...rest, counted_at: said };
}

/** Returns the change by whose ids an item, even an unreadable one, names its article; undefined if its ids are unreadable. */
export function namedBy(item: SubmittedChange): Change | undefined {
  if ('change' in item) return item;
  const { kind, value } = item;
  if (typeof value !== 'object' || value === null) return undefined;
  const ids = ADDRESS_KEYS.flatMap((key) =>
    key in value ? [[key, (value as Record<string, unknown>)[key]]] : [],
  );
  const reading = readChange(kind, {
    ...Object.fromEntries(ids),
    ...(kind === 'stock' ? { qty: 0 } : { show: true }),
  });
  return 'change' in reading ? reading : undefined;
}

/**
 * Returns why a value is no number. In many countries the comma is the decimal sign and the point separates thousands.
 */
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

/** Position of an item in its file. */
export interface SourceLine {
  /** Index of the item from 0; the header does not count. */
  index: number;
  /** Line from 1 at which the item begins; null in a JSON array. */
  line: number | null;
  /**
   * Stock that the file does not contain, so that this added line sets it to zero. The line's `index` continues after
   * the last item's.
   */
  unnamed?: string;
}

/** An item as read from its file, not yet checked as a change. A faulty one has the values that could be read. */
export type RawItem = SourceLine & ({ value: unknown } | { fault: ChangeFault; value?: unknown });

/** Receives a file chunk by chunk and returns the items that are complete. */
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

/** Maximum time by which a POS's clock may be ahead of this machine's. Such a count counts as made when it was sent. */
const AHEAD_MAX_MS = 2 * 60_000;
/** Maximum age of a count when it is sent. An older one is a file of another day. */
const AGE_MAX_MS = 24 * 3_600_000;

/**
 * Reads when a count was made, and returns the item with the time as ISO 8601 UTC, at most the time at which the item
 * was handed over. Returns the item as faulty if its time is no time, ahead of that, or older than a day. `timezone`
 * is the zone of times that name none.
 */
export function withCountTime(
  item: SubmittedChange,
  { nowMs, timezone }: { nowMs: number; timezone: string | undefined },
): SubmittedChange {
  const { countedAt: said, handedAt } = item;
  if (said == null || 'fault' in item) return item;
  const fault = (why: string): SubmittedChange => {
    // The rest has neither the change nor the time, because a faulty item is not read any further.
    const { change, countedAt: _, ...rest } = item;
    const message = `counted_at ${JSON.stringify(said)} ${why}`;
    const value = { ...change, counted_at: said };
    return {
      ...rest,
      reference: rest.reference ?? null,
      value,
      fault: { code: 'bad-value', column: 'counted_at', message },
    };
  };
  const countedAt = timeReader(timezone)(said);
  if (countedAt === undefined) return fault('is no time. Write it as 2026-11-28T09:55:00-03:00.');
  const handedMs = Math.min(nowMs, Date.parse(handedAt ?? '') || nowMs);
  const countedMs = Date.parse(countedAt);
  const zone = timezone === undefined ? '' : ` A time without a zone is read in ${timezone}.`;
  if (countedMs > handedMs + AHEAD_MAX_MS) {
    return fault(`is ahead of this machine's clock, which says ${isoUtc(handedMs)}.${zone}`);
  }
  if (countedMs < handedMs - AGE_MAX_MS) {
    return fault(`is more than ${formatDuration(AGE_MAX_MS)} old. Count again.${zone}`);
  }
  return { ...item, countedAt: countedMs > handedMs ? isoUtc(handedMs) : countedAt };
}

/** When a value was counted: the time that the POS gave, else the time at which it was handed over. */
export function countTime({ countedAt, handedAt }: { countedAt: string | null; handedAt: string }): string {
  return countedAt ?? handedAt;
}

/** Returns a sentence that says why a count is not sent: another one was made later. */
export function countedLater(change: CountTimes, by: CountTimes & { changeId: number }): string {
  return `Not sent: counted at ${countTime(change)}, and change ${by.changeId} was counted at ${countTime(by)}.`;
}

type CountTimes = Pick<OutboxChange, 'countedAt' | 'handedAt'>;
