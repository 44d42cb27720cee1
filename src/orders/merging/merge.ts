import { ITEM_FIELDS, ORDER_FIELDS } from './field-aliases.ts';
import { isBlank, isForeignWord } from './field-values.ts';
import type { OrderItem } from './mirrored-order.ts';
import {
  isBackwards,
  isKnownStatus,
  isPaid,
  NAMED,
  NOT_SAID,
  type OrderFields,
  type OrderOutcome,
  type OrderReading,
  type OrderSource,
  takesNothing,
  type Weight,
} from './order.ts';

/**
 * Who is believed, for each value of an order. What is heard replaces what is known unless it weighs less; the table in
 * docs/pos.md, "Who is believed", says the same for POS vendors.
 */

/** A value of a field as the database stores it. */
export type Value = string | number | null;

export function asValue(sent: string | number | boolean | null | undefined): Value {
  return typeof sent === 'boolean' ? Number(sent) : (sent ?? null);
}

/** Weights of what is known of an order. Those of several values are one text, which has the digit of each. */
interface Weights {
  /** In the order of `ORDER_FIELDS`. */
  fields: string;
  /** Of the list of lines as a whole: which products, and how many of each. */
  list: Weight;
  /** Of each line, in the order of `LINE_FIELDS`. */
  lines: readonly string[];
}

/** Returns one of several weights; `NOT_SAID` where there is none. */
function weightAt(weights: string | undefined, at: number): Weight {
  return (weights?.[at] ?? NOT_SAID) as Weight;
}

/** Parts of a line, each with a weight of its own. */
const LINE_FIELDS = [...ITEM_FIELDS, 'modifiers'] as const;
const QUANTITY_AT = LINE_FIELDS.indexOf('quantity');

/** Returns the text that the column `evidence` has for the weights: a digit for each part, the lines behind the order. */
export function weightsText({ fields, list, lines }: Weights): string {
  let text = fields + list;
  for (const line of lines) text += ` ${line}`;
  return text;
}

/** Returns the weights of a reading's values, by name, without those of names that are not guessed. */
function guessesIn({ fields, list, lines }: Weights): Pick<OrderReading, 'weights' | 'lineWeights'> {
  const named = (names: readonly string[], weights: string) =>
    Object.fromEntries(names.flatMap((name, i) => (weights[i] === NAMED ? [] : [[name, weights[i]]])));
  return {
    weights: named([...ORDER_FIELDS, 'items'], fields + list),
    lineWeights: lines.map((weights) => named(LINE_FIELDS, weights)),
  };
}

/** Returns the weights in a text of `weightsText`. */
export function weightsIn(text: string): Weights {
  const [order = '', ...lines] = text.split(' ');
  return { fields: order.slice(0, -1), list: weightAt(order, order.length - 1), lines };
}

/** What is known of an order's fields; the weights of an order that is not known yet are all `NOT_SAID`. */
interface KnownFields {
  /** In the order of `ORDER_FIELDS`. */
  values: readonly Value[];
  weights: string;
}

/**
 * Returns the fields of an order after a reading, each the heavier of the known and the heard value. `isWhole`: all that
 * the reading says is believed.
 */
function believedFields(
  known: KnownFields | undefined,
  { fields, weights }: Pick<OrderReading, 'fields' | 'weights'>,
  { isSnapshot, isWhole }: { isSnapshot: boolean; isWhole: boolean },
): { values: Value[]; weights: string } {
  const values: Value[] = [];
  let believed = '';
  for (let i = 0; i < ORDER_FIELDS.length; i++) {
    const name = ORDER_FIELDS[i] as keyof OrderFields;
    const sent = fields[name];
    const before = known?.values[i] ?? null;
    const weightBefore = weightAt(known?.weights, i);
    const weight = sent === undefined ? NOT_SAID : (weights?.[name] ?? NAMED);
    const isTaken =
      sent !== undefined &&
      (isWhole ||
        (isBelieved(name, before, weightBefore, sent ?? null, weight) &&
          (isSnapshot || !takesAway(sent, before))));
    values.push(isTaken ? asValue(sent) : before);
    believed += isTaken ? weight : weightBefore;
  }
  return { values, weights: believed };
}

/** Returns whether a value is an empty text in place of a known one. From a poll it says nothing. */
function takesAway(sent: unknown, known: unknown): boolean {
  return isBlank(sent) && known !== null && !isBlank(known);
}

/**
 * Returns whether a value replaces the known one. A status of the document is proof of itself, under whatever name it is
 * sent, and another word replaces none of the document's, neither a status nor a way of delivery.
 */
function isBelieved(
  field: keyof OrderFields,
  known: Value,
  knownWeight: Weight,
  sent: unknown,
  weight: Weight,
): boolean {
  const isWord = field === 'deliveryType' && knownWeight === NAMED && !isForeignWord(known, 'delivery');
  if (isWord && isForeignWord(sent, 'delivery')) return false;
  if (field !== 'status') return weight >= knownWeight;
  if (sent === null) return false;
  if (known === null || isNamedStatus(sent)) return true;
  return !isNamedStatus(known) && weight >= knownWeight;
}

function isNamedStatus(value: unknown): boolean {
  return typeof value === 'string' && isKnownStatus(value);
}

/** What is known of an order's lines. The items are read only where they are needed. */
interface KnownLines {
  items: () => readonly OrderItem[];
  /** Returns whether these are the known items, without reading them one by one. */
  has: (items: readonly OrderItem[]) => boolean;
  weights: Pick<Weights, 'list' | 'lines'>;
}

interface Lines {
  items: OrderItem[];
  list: Weight;
  lines: string[];
}

/**
 * Returns the lines of an order after a reading; undefined if the reading says nothing of them. A snapshot replaces the
 * known list whole; a line of a record keeps what the record does not say of it, and an empty record says nothing. A
 * list that weighs less only fills gaps in lines that are the same. `isWhole`: all that the reading says is believed.
 */
function believedLines(
  known: KnownLines | undefined,
  reading: OrderReading,
  { isSnapshot, isWhole }: { isSnapshot: boolean; isWhole: boolean },
): Lines | undefined {
  if (reading.items === undefined) return undefined;
  const said = saidLines(reading, reading.items);
  if (known === undefined || isWhole) return said;
  const { list, lines } = known.weights;
  if (known.has(said.items)) return heavier(said, known.weights);
  const isLess = said.list < list;
  if (isSnapshot && !isLess) return said;
  const before = known.items();
  if (before.length === 0) return said;
  if (said.items.length === 0) return undefined;
  const knownLines = { items: before, lines };
  const partners = pairs(knownLines, said, { byProduct: !isLess });
  const merged = said.items.map((_, i) => {
    const at = partners[i];
    const heard = lineAt(said, i);
    return at === undefined ? heard : mergedLine(lineAt(knownLines, at), heard);
  });
  if (!isLess) {
    return {
      items: merged.map(({ item }) => item),
      list: said.list,
      lines: merged.map(({ weights }) => weights),
    };
  }
  const filled = { items: [...before], list, lines: before.map((_, i) => lines[i] ?? '') };
  for (const [i, { item, weights }] of merged.entries()) {
    const at = partners[i];
    if (at === undefined) continue;
    filled.items[at] = item;
    filled.lines[at] = weights;
  }
  return filled;
}

/** Returns lines that are the known ones, each part with the heavier of both weights. */
function heavier({ items, list, lines }: Lines, known: KnownLines['weights']): Lines {
  const of = (weight: Weight, before: Weight) => (weight > before ? weight : before);
  const ofLine = (line: string, before: string | undefined) =>
    line === before
      ? line
      : LINE_FIELDS.map((_, at) => of(weightAt(line, at), weightAt(before, at))).join('');
  return { items, list: of(list, known.list), lines: lines.map((line, i) => ofLine(line, known.lines[i])) };
}

/** Returns a reading's lines with their weights. What a line does not say has the weight `NOT_SAID`. */
function saidLines({ weights, lineWeights, isBrief }: OrderReading, items: OrderItem[]): Lines {
  const lines: string[] = [];
  for (let i = 0; i < items.length; i++) {
    const guesses = lineWeights?.[i];
    const item = items[i] as OrderItem;
    lines.push(guesses ? guessedLine(item, guesses, isBrief === true) : namedLine(item, isBrief === true));
  }
  return { items, list: weights?.items ?? NAMED, lines };
}

function guessedLine(item: OrderItem, guesses: Partial<Record<string, Weight>>, isBrief: boolean): string {
  const isSaid = (field: (typeof LINE_FIELDS)[number]) =>
    field === 'modifiers' ? !isBrief : item[field] !== null;
  return LINE_FIELDS.map((field) => (isSaid(field) ? (guesses[field] ?? NAMED) : NOT_SAID)).join('');
}

/** Weights of a line without a guess, by the set of its parts that are said: a bit for each. */
const NAMED_LINES = Array.from({ length: 1 << LINE_FIELDS.length }, (_, said) =>
  LINE_FIELDS.map((_field, i) => ((said >> i) & 1 ? NAMED : NOT_SAID)).join(''),
);

/** Returns the weights of a line without a guess. Nearly every line of a callback is one, so it builds no text. */
function namedLine(item: OrderItem, isBrief: boolean): string {
  let said = isBrief ? 0 : 1 << ITEM_FIELDS.length;
  for (let i = 0; i < ITEM_FIELDS.length; i++) {
    if (item[ITEM_FIELDS[i] as (typeof ITEM_FIELDS)[number]] !== null) said |= 1 << i;
  }
  return NAMED_LINES[said] as string;
}

/**
 * Returns for each heard line the position of the known line that it is: the same quantity of the same product, at the
 * same position if that one is, otherwise the first that no other line is. Where the heard list decides on quantities,
 * what is left is paired by the product alone.
 */
function pairs(
  known: WeighedLines,
  heard: WeighedLines,
  { byProduct }: { byProduct: boolean },
): (number | undefined)[] {
  const free = new Set(known.items.keys());
  const found = new Map<number, number>();
  const pair = (isPair: (at: number, i: number) => boolean) => {
    const unpaired = () => [...heard.items.keys()].filter((i) => !found.has(i));
    for (const i of unpaired()) {
      if (free.has(i) && isPair(i, i) && free.delete(i)) found.set(i, i);
    }
    for (const i of unpaired()) {
      const at = [...free].find((each) => isPair(each, i));
      if (at !== undefined && free.delete(at)) found.set(i, at);
    }
  };
  const isSameProduct = (at: number, i: number) => isProduct(lineAt(known, at), lineAt(heard, i));
  pair((at, i) => known.items[at]?.quantity === heard.items[i]?.quantity && isSameProduct(at, i));
  if (byProduct) pair(isSameProduct);
  return Array.from(heard.items, (_, i) => found.get(i));
}

/** Lines with the weights of each. */
interface WeighedLines {
  items: readonly OrderItem[];
  lines: readonly string[];
}

interface WeighedLine {
  item: OrderItem;
  weights: string;
}

function lineAt({ items, lines }: WeighedLines, at: number): WeighedLine {
  return { item: items[at] as OrderItem, weights: lines[at] ?? '' };
}

/** Returns whether a heard line is of the known line's product. What weighs less than what is known contradicts nothing. */
function isProduct(known: WeighedLine, heard: WeighedLine): boolean {
  const names = ['productExternalId', 'productName'] as const;
  const isSame = (name: keyof OrderItem) =>
    known.item[name] !== null && known.item[name] === heard.item[name];
  const isOther = (name: (typeof LINE_FIELDS)[number]) => {
    if (known.item[name] === null || heard.item[name] === null || isSame(name)) return false;
    if (takesAway(heard.item[name], known.item[name])) return false;
    const at = LINE_FIELDS.indexOf(name);
    return weightAt(heard.weights, at) >= weightAt(known.weights, at);
  };
  return names.some(isSame) && !names.some(isOther);
}

/** Prices of the whole line, which another quantity makes untrue. */
const WHOLE_PRICES: readonly string[] = ['productPrice', 'productBasePrice'] satisfies (keyof OrderItem)[];

function mergedLine(known: WeighedLine, heard: WeighedLine): WeighedLine {
  const merged: Record<string, unknown> = { ...known.item };
  const weightOf = ({ weights }: WeighedLine, i: number) => weightAt(weights, i);
  const isOtherQuantity =
    known.item.quantity !== heard.item.quantity &&
    weightOf(heard, QUANTITY_AT) > NOT_SAID &&
    weightOf(heard, QUANTITY_AT) >= weightOf(known, QUANTITY_AT);
  const believed = LINE_FIELDS.map((field, i) => {
    const isUntrue = isOtherQuantity && WHOLE_PRICES.includes(field);
    if (isUntrue) merged[field] = null;
    const before = isUntrue ? NOT_SAID : weightOf(known, i);
    const weight = weightOf(heard, i);
    if (weight === NOT_SAID || weight < before) return before;
    if (takesAway(heard.item[field], known.item[field])) return before;
    merged[field] = heard.item[field];
    return weight;
  });
  return { item: merged as unknown as OrderItem, weights: believed.join('') };
}

/** State of an order in the mirror before an observation is merged. */
interface KnownOrder {
  status: string | null;
  /** Sequence number and source of the order's newest event. */
  seq: number;
  source: OrderSource;
  /** When the order was placed or, if later, is due; null if unknown. */
  dueMs?: number | null;
}

/** The parts of an observation that decide whether the observation is applied. */
interface MergeInput {
  source: OrderSource;
  /** Status of the order; undefined if the observation has none. */
  status: string | null | undefined;
  /** Newest seq when the poll's request began; undefined for a webhook. */
  asOfSeq?: number | undefined;
  /** When the webhook arrived, by the wall clock. */
  observedAtMs?: number | undefined;
  /** True if applying the observation would change nothing that a POS can read. */
  sameContent: boolean;
  /** True if it was decided before that the observation counts, as when it is read again. */
  isDecided?: boolean | undefined;
  /** Returns the status of the webhook that was held before this one; null if there is none or a poll may decide. */
  heldBefore?: (() => string | null) | undefined;
}

/** Age of an order from which a failed payment is not believed at once, because the callback may be an old one. */
const OLD_AFTER_MS = 24 * 3_600_000;

/**
 * Decides what is done with an observation. Callbacks arrive in any order, so one that contradicts what is known is
 * held. A poll always decides, unless a callback was applied after the poll's request began.
 */
function mergeOutcome(known: KnownOrder, input: MergeInput): OrderOutcome {
  const { source, status, observedAtMs = 0, asOfSeq, sameContent } = input;
  if (source === 'poll') {
    const newerWebhook = known.source === 'webhook' && asOfSeq !== undefined && known.seq > asOfSeq;
    if (newerWebhook) return sameContent ? 'confirmed' : 'superseded';
  } else if (!input.isDecided && contradicts(known, status, observedAtMs) && !isSecondWitness(known, input)) {
    return 'held';
  }
  return sameContent ? 'confirmed' : 'changed';
}

/**
 * Returns whether a callback's status contradicts what is known: it is a step back, it takes back an order that was
 * delivered, or it says that the payment of an order failed that was paid, or is so old that the callback may be.
 */
export function contradicts(
  known: Pick<KnownOrder, 'status' | 'dueMs'>,
  status: string | null | undefined,
  observedAtMs: number,
): boolean {
  if (isBackwards(known.status, status)) return true;
  if (status == null || !takesNothing(status) || takesNothing(known.status)) return false;
  if (known.status === 'dispatched') return true;
  if (status !== 'payment-canceled') return false;
  return isPaid(known.status) || (known.dueMs != null && observedAtMs - known.dueMs > OLD_AFTER_MS);
}

/** Returns whether a callback and the one held before it agree against what is known; see `goesOnFrom`. */
function isSecondWitness(known: KnownOrder, { status, heldBefore }: MergeInput): boolean {
  if (status == null || takesNothing(status) === takesNothing(known.status)) return false;
  return goesOnFrom(known.status, heldBefore?.() ?? null, status);
}

/**
 * Returns whether the statuses of two callbacks say the same of a known order: that it lives though it counts as ended,
 * or the reverse. The second must go on from the first, because a repetition is no witness.
 */
export function goesOnFrom(known: string | null, first: string | null, second: string | null): boolean {
  if (first === null || second === null || takesNothing(second) === takesNothing(known)) return false;
  if (first === second || isBackwards(first, second)) return false;
  return takesNothing(first) === takesNothing(second);
}

/** What is known of an order before an observation is merged. */
export interface Known {
  /** In the order of `ORDER_FIELDS`. */
  values: readonly Value[];
  weights: Weights;
  lines: Pick<KnownLines, 'items' | 'has'>;
  seq: number;
  source: OrderSource;
}

export interface Heard
  extends Pick<MergeInput, 'source' | 'asOfSeq' | 'observedAtMs' | 'isDecided' | 'heldBefore'> {
  reading: OrderReading;
  /** True if the reading has all that is known, as from the hub or from all payloads of the order. */
  isSnapshot?: boolean | undefined;
  /** True if all that the reading says is believed. */
  isWhole?: boolean | undefined;
}

export interface Merged {
  outcome: OrderOutcome;
  /** Values that the order has if the observation is applied, in the order of `ORDER_FIELDS`. */
  values: Value[];
  weights: Weights;
  /** Lines that the order has if the observation is applied; undefined if the observation says nothing of them. */
  items: OrderItem[] | undefined;
  sameItems: boolean;
}

const STATUS_AT = ORDER_FIELDS.indexOf('status');
const DUE_AT = [ORDER_FIELDS.indexOf('createdAt'), ORDER_FIELDS.indexOf('scheduledFor')];

/** Returns when the order was placed or, if later, is due; null if unknown. */
export function dueMsIn(values: readonly Value[]): number | null {
  const times = DUE_AT.map((at) => Date.parse(String(values[at]))).filter((ms) => !Number.isNaN(ms));
  return times.length > 0 ? Math.max(...times) : null;
}

function stateOf({ values, seq, source }: Known): KnownOrder {
  return { status: (values[STATUS_AT] ?? null) as string | null, seq, source, dueMs: dueMsIn(values) };
}

/** Merges an observation with what is known: who is believed, for each value, and whether the whole is applied. */
export function merge(known: Known | undefined, heard: Heard): Merged {
  const { reading, source, isWhole = false } = heard;
  const before = known && { values: known.values, weights: known.weights.fields };
  const how = { isSnapshot: source === 'webhook' || heard.isSnapshot === true, isWhole };
  const { values, weights } = believedFields(before, reading, how);
  const knownLines = known && { ...known.lines, weights: known.weights };
  const lines = believedLines(knownLines, reading, how);
  const sameItems = known !== undefined && (lines === undefined || known.lines.has(lines.items));
  const outcome =
    known === undefined
      ? 'created'
      : mergeOutcome(stateOf(known), {
          ...heard,
          status: reading.fields.status,
          isDecided: heard.isDecided || isWhole,
          sameContent: sameItems && values.every((value, i) => value === known.values[i]),
        });
  const { list, lines: ofLines } = lines ?? known?.weights ?? { list: NOT_SAID, lines: [] };
  return {
    outcome,
    values,
    weights: { fields: weights, list, lines: ofLines },
    items: lines?.items,
    sameItems,
  };
}

/** One stored observation of an order, read by the present rules. */
export interface ReplayStep {
  source: OrderSource;
  reading: OrderReading;
  /** When it was received, ISO 8601 UTC. */
  receivedAt: string;
  /** True if its status was believed when it came. */
  wasBelieved: boolean;
}

export interface ReplayResult<Step extends ReplayStep> {
  /** Merged content of all observations. */
  reading: OrderReading;
  /** The last observation that was applied; undefined if none was. */
  last: Step | undefined;
  /** Webhooks that contradict what was known before them. */
  held: Step[];
}

/**
 * Merges all observations of an order again, oldest first: [{status: a, tip: 1}, {status: b}] → {status: b, tip: 1}.
 * A webhook that was held when it came, or would have been, is left out.
 */
export function replay<Step extends ReplayStep>(orderId: string, steps: readonly Step[]): ReplayResult<Step> {
  const held: Step[] = [];
  let known: Known | undefined;
  let items: OrderItem[] | undefined;
  let incomplete: string[] | undefined;
  let last: Step | undefined;
  for (const step of steps) {
    const { source, reading, receivedAt, wasBelieved } = step;
    const observedAtMs = Date.parse(receivedAt);
    const merged = merge(known, { source, reading, observedAtMs, isDecided: wasBelieved });
    if (merged.outcome === 'held') {
      held.push(step);
      continue;
    }
    items = merged.items ?? items;
    known = { ...merged, lines: linesOf(items ?? []), seq: 0, source };
    incomplete = reading.incomplete ?? (merged.items ? [] : (incomplete ?? []));
    last = step;
  }
  const reading = known ? readingOf(orderId, known, items) : { orderId, fields: {} };
  return { reading: { ...reading, ...(incomplete && { incomplete }) }, last, held };
}

function linesOf(items: OrderItem[]): Known['lines'] {
  return { items: () => items, has: (others) => JSON.stringify(others) === JSON.stringify(items) };
}

/** Returns what is known as a reading, which says what was ever said. */
function readingOf(
  orderId: string,
  { values, weights }: Known,
  items: OrderItem[] | undefined,
): OrderReading {
  const said = ORDER_FIELDS.flatMap((name, i) =>
    weightAt(weights.fields, i) === NOT_SAID ? [] : [[name, values[i] ?? null]],
  );
  const fields: OrderFields = Object.fromEntries(said);
  return { orderId, fields, ...guessesIn(weights), ...(items && { items }) };
}

/** Returns the reading, but without its status if a callback with that status would be held. */
export function withoutContradiction(
  reading: OrderReading,
  known: Pick<KnownOrder, 'status' | 'dueMs'>,
  observedAtMs: number,
): OrderReading {
  if (!contradicts(known, reading.fields.status, observedAtMs)) return reading;
  const { status: _contradicting, ...fields } = reading.fields;
  return { ...reading, fields };
}
