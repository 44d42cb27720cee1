import {
  joinedList,
  type RecordList,
  recordText,
  type ScannedAnswer,
  scanInside,
} from '../../core/json-records.ts';
import { ORDER_SPELLINGS, type OrderSpellings } from '../merging/field-aliases.ts';
import { isRecord } from '../merging/field-values.ts';
import { isKnownStatus, type OrderReading, type UnreadList } from '../merging/order.ts';
import { readSentOrder, unwrap } from '../merging/order-reader.ts';

/**
 * Finds the orders in an answer of GET /order/all, which the document does not show. An answer may have several lists
 * of orders, such as one for each day or status.
 */

export interface ReadingRules {
  spellings: OrderSpellings;
  /** Path of the list, from the configuration; empty if not configured. `$` or `root` alone means the whole answer. */
  listPath: string;
}

export interface FoundOrders {
  /** The records of all lists of orders, in the order of the answer's best list first; empty if there are no orders. */
  list: RecordList;
  /** Filled lists that are not read as orders. */
  unread: UnreadList[];
}

/** Likely names of a list of orders, best first. The empty name means that the answer itself is the list. */
const LIST_NAMES = [
  'orders',
  'data',
  'docs',
  'items',
  'results',
  'result',
  'list',
  'records',
  'rows',
  'content',
  '',
];

/** Names of lists without orders. They are usually empty, and must not be taken for an empty list of orders. */
const OTHER_NAMES = new Set(['errors', 'warnings', 'messages', 'links', 'filters', 'tags']);
/** Names of the lines of an order. */
const LINE_NAMES = new Set(ORDER_SPELLINGS.items.names.map((name) => name.slice(name.lastIndexOf('.') + 1)));
/** Names of numbers that say how many records an answer has. */
const COUNT_NAMES = /^(total|count|totaldocs|totalcount|totalrecords|totalorders|ordercount)$/i;

const SAMPLES = 20;
/** Number of lists of lists that are opened, one inside the other. */
const INSIDE_MAX = 3;
/** Share of common names from which two records count as of the same kind. */
const SAME_SHARE = 0.5;
const UNREAD_MAX = 20;
/** Longest answer without any record that is examined for saying that there are no orders. */
const NOTHING_MAX_BYTES = 65_536;

/** What a sample of a list's records shows. */
interface Sample {
  list: RecordList;
  /** True if a record has an order id, which is no proof, because customers have ids too. */
  hasIds: boolean;
  /** True if a record looks like an order. */
  areOrders: boolean;
  hasLines: boolean;
  /** True if a record has an id and a status of the document, as a short record of an order has. */
  hasStatus: boolean;
}

/**
 * Finds all lists of orders in an answer. It tries the configured path, then every list or object whose records look
 * like orders, then a list with a likely name whose records have ids. The list is empty if the answer says that there
 * are no orders. Returns undefined if no list is found.
 */
export function chooseOrders(
  body: Uint8Array,
  answer: ScannedAnswer,
  rules: ReadingRules,
): FoundOrders | undefined {
  return new Choice(body, answer, rules).made();
}

class Choice {
  readonly #body: Uint8Array;
  readonly #answer: ScannedAnswer;
  readonly #rules: ReadingRules;

  constructor(body: Uint8Array, answer: ScannedAnswer, rules: ReadingRules) {
    this.#body = body;
    this.#answer = answer;
    this.#rules = rules;
  }

  made(): FoundOrders | undefined {
    const { lists, maps } = this.#answer;
    const configured = normalPath(this.#rules.listPath);
    const path = lists.find((each) => each.path === configured);
    if (path && (path.length === 0 || this.#sample(path).hasIds)) return { list: path, unread: [] };

    const keyed = maps.map((map) => this.#sample(map)).filter(({ areOrders }) => areOrders);
    const whole = keyed.filter(({ hasLines }) => hasLines);
    const outside = (list: RecordList) => !whole.some((map) => isInside(map.list, list));
    const samples = this.#samples(lists.filter((list) => list.length > 0 && outside(list)));
    const sure = [...whole, ...samples.filter(({ areOrders }) => areOrders)];
    const found = sure.length > 0 ? sure : keyed;
    if (found.length > 0) return this.#surely(found, samples);
    const likely = this.#likely(samples);
    if (likely) return likely;
    const empty = this.#emptyList(samples);
    return empty && { ...this.#result([], samples, () => false), list: empty };
  }

  /** Returns the orders of records that look like orders. */
  #surely(found: readonly Sample[], samples: readonly Sample[]): FoundOrders {
    // The best list comes first, because the first record of an order is the one that is read.
    const sorted = found.toSorted(
      (a, b) =>
        Number(b.hasLines) - Number(a.hasLines) ||
        rankOf(a.list) - rankOf(b.list) ||
        b.list.length - a.list.length,
    );
    const [best] = sorted as [Sample];
    const isEmptyBeside =
      !isLikely(best.list) && this.#answer.lists.some((list) => isLikely(list) && list.length === 0);
    // Where a list with a likely name is empty, other records must show more than an order has in common with others.
    // Payments, customers and branches have as much in common with an order, but no lines.
    const isAccepted = (each: Sample) => each.hasLines === best.hasLines && this.#areAlike(each, best);
    const accepted =
      isEmptyBeside && !best.hasLines ? [] : sorted.filter((each) => each === best || isAccepted(each));
    const mayBe = ({ areOrders, hasStatus }: Sample) => areOrders || hasStatus;
    return this.#result(accepted, [...found, ...samples], mayBe);
  }

  /** Returns the orders of the best list with a likely name, whose records have no more than an id in common. */
  #likely(samples: readonly Sample[]): FoundOrders | undefined {
    const [best] = samples
      .filter(({ list, hasIds }) => hasIds && isLikely(list))
      .toSorted((a, b) => rankOf(a.list) - rankOf(b.list) || depthOf(a.list) - depthOf(b.list));
    if (!best) return undefined;
    return this.#result([best], samples, (each) => each.hasIds && this.#areAlike(each, best));
  }

  #result(
    accepted: readonly Sample[],
    samples: readonly Sample[],
    isDoubtful: (sample: Sample) => boolean,
  ): FoundOrders {
    const isRead = (start: number) =>
      accepted.some(
        ({ list }) => start >= (list.starts[0] ?? 0) && start < (list.ends[list.length - 1] ?? 0),
      );
    const unread = new Map<string, UnreadList>();
    for (const sample of samples) {
      const { list } = sample;
      if (accepted.includes(sample) || OTHER_NAMES.has(lastName(list))) continue;
      unread.set(list.path, { path: list.path, records: list.length, mayBeOrders: isDoubtful(sample) });
    }
    for (const { path, start } of this.#answer.skipped) {
      if (!isRead(start)) unread.set(path, { path, records: null, mayBeOrders: true });
    }
    const list = joinedList(accepted.map((each) => each.list));
    return { list, unread: [...unread.values()].slice(0, UNREAD_MAX) };
  }

  /**
   * Returns the empty list of an answer that says that there are no orders, by an empty list or by nothing in the place
   * of one, such as `{"success": true, "data": null}`. Returns undefined if the answer does not say so.
   */
  #emptyList(samples: readonly Sample[]): RecordList | undefined {
    const { lists, hints, skipped } = this.#answer;
    // A filled but unreadable list may hold the orders, so an empty list beside it does not mean that there are none.
    if (hints.success === false || skipped.length > 0 || samples.some(({ list }) => isLikely(list)))
      return undefined;
    const [likely] = lists
      .filter(isLikely)
      .toSorted((a, b) => rankOf(a) - rankOf(b) || depthOf(a) - depthOf(b));
    if (likely) return likely;
    const others = lists.filter((list) => !OTHER_NAMES.has(lastName(list)));
    if (others.length > 0) return others.every((list) => list.length === 0) ? others[0] : undefined;
    if (this.#body.length > NOTHING_MAX_BYTES) return undefined;
    const value: unknown = JSON.parse(new TextDecoder().decode(this.#body));
    const saysNone = isRecord(value) && isNothing(value) && (hints.success === true || hasPlace(value));
    return saysNone ? joinedList([]) : undefined;
  }

  /**
   * Samples lists, and the lists inside their elements where the elements themselves are no orders, or only look like
   * orders while those inside have lines.
   */
  #samples(lists: readonly RecordList[], depth = 0): Sample[] {
    return lists.flatMap((list) => {
      const sample = this.#sample(list);
      // A list of that name is believed: what has lines inside its records are the parcels of an order.
      const areSurelyOrders = sample.hasLines || (sample.areOrders && rankOf(list) === 0);
      if (areSurelyOrders || depth >= INSIDE_MAX || OTHER_NAMES.has(lastName(list))) return sample;
      const inner = scanInside(this.#body, list);
      // The lines of an order are no orders, even if they have as much in common with one as another list's records.
      const isLines = (each: Sample) =>
        sample.hasIds && LINE_NAMES.has(lastName(each.list)) && !each.hasLines;
      const inside = this.#samples(
        inner.lists.filter((each) => each.length > 0),
        depth + 1,
      );
      const orders = inside.filter((each) => each.areOrders && !isLines(each));
      if (!orders.some(({ hasLines }) => hasLines || !sample.areOrders)) return sample;
      this.#answer.skipped.push(...inner.skipped);
      Object.assign(this.#answer.hints, { ...inner.hints, ...this.#answer.hints });
      return inside.filter((each) => !isLines(each));
    });
  }

  /** Reads some records, spread over the whole list, until one of them is an order with lines. */
  #sample(list: RecordList): Sample {
    const sample: Sample = { list, hasIds: false, areOrders: false, hasLines: false, hasStatus: false };
    for (const { isOrder, hasLines, hasStatus } of this.#records(list)) {
      sample.hasIds = true;
      sample.areOrders ||= isOrder;
      sample.hasStatus ||= hasStatus;
      sample.hasLines ||= isOrder && hasLines;
      if (sample.hasLines) break;
    }
    return sample;
  }

  /** Returns whether the records of two lists are of the same kind, by their names. */
  #areAlike(one: Sample, other: Sample): boolean {
    const [names, others] = [this.#namesOf(one), this.#namesOf(other)];
    const common = [...names].filter((name) => others.has(name)).length;
    return common >= SAME_SHARE * (names.size + others.size - common);
  }

  /** Returns the names of the properties of the records that look like orders, or else of those with an id. */
  #namesOf({ list, areOrders }: Sample): ReadonlySet<string> {
    const names = new Set<string>();
    for (const { value, isOrder } of this.#records(list)) {
      if (isOrder !== areOrders) continue;
      for (const name of Object.keys(unwrap(value, this.#rules.spellings))) names.add(name);
    }
    return names;
  }

  /** Yields those of some records, spread over the whole list, that have an id. */
  *#records(list: RecordList) {
    const step = Math.max(1, Math.floor(list.length / SAMPLES));
    for (let index = 0; index < list.length; index += step) {
      const text = recordText(this.#body, list, index);
      const value = parsed(text);
      if (!isRecord(value)) continue;
      const reading = readSentOrder(value, text, this.#rules.spellings);
      if (!('orderId' in reading)) continue;
      const { items, fields } = reading;
      const hasStatus = fields.status != null && isKnownStatus(fields.status);
      yield { value, isOrder: looksLikeOrder(reading), hasLines: items !== undefined, hasStatus };
    }
  }
}

/** Returns whether a record looks like an order. An id is no proof, because customers have ids too. */
function looksLikeOrder({ fields, items }: OrderReading): boolean {
  const signs = [
    items,
    fields.status,
    fields.code,
    fields.amountToPay,
    fields.deliveryType,
    fields.createdAt,
  ];
  return signs.filter((sign) => sign !== undefined).length >= 3;
}

/** Returns whether the answer has nothing in the place of its records, and no error. */
function isNothing(answer: Record<string, unknown>): boolean {
  return Object.entries(answer).every(([name, value]) => {
    if (name === 'error' || name === 'errors' || LIST_NAMES.includes(name)) return isEmpty(value);
    return isRecord(value) ? isEmpty(value) : !COUNT_NAMES.test(name) || Number(value ?? 0) === 0;
  });
}

/**
 * Returns whether a value is in the place of records and has none: null, an empty object, or an object that counts 0
 * records or has only numbers, such as those of its pages.
 */
function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  if (!isRecord(value)) return value === null || value === false || value === '';
  const entries = Object.entries(value);
  const counts = entries.filter(([name]) => COUNT_NAMES.test(name)).map(([, count]) => Number(count ?? 0));
  if (counts.length > 0) return counts.every((count) => count === 0);
  return entries.every(([, each]) => isEmpty(each) || typeof each === 'number' || typeof each === 'boolean');
}

/** Returns whether something is in the place of a list of orders. */
function hasPlace(answer: Record<string, unknown>): boolean {
  return LIST_NAMES.some((name) => Object.hasOwn(answer, name));
}

function isInside(outer: RecordList, inner: RecordList): boolean {
  const [start, end] = [outer.starts[0] ?? 0, outer.ends[outer.length - 1] ?? 0];
  return (inner.starts[0] ?? 0) >= start && (inner.ends[inner.length - 1] ?? 0) <= end;
}

function isLikely(list: RecordList): boolean {
  return rankOf(list) < LIST_NAMES.length;
}

function rankOf(list: RecordList): number {
  const rank = LIST_NAMES.indexOf(lastName(list));
  return rank === -1 ? LIST_NAMES.length : rank;
}

function depthOf(list: RecordList): number {
  return list.path.split('.').length;
}

function lastName({ path }: RecordList): string {
  return path.slice(path.lastIndexOf('.') + 1).replace(/\[\]$|\{\}$/, '');
}

function normalPath(path: string): string | undefined {
  const trimmed = path.trim();
  if (trimmed === '') return undefined;
  return trimmed === 'root' ? '' : trimmed.replace(/^\$\.?/, '');
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
