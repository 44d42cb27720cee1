import { hasLongNumber, parseLossless, readNumber } from '../../core/values.ts';
import {
  hasValueOf,
  type Naming,
  ORDER_SPELLINGS,
  type OrderSpellings,
  type SpellingNode,
  type SpellingTree,
  WRAPPER_NAMES,
} from './field-aliases.ts';
import { BROKEN_ID, type FieldKind, INEXACT_ID, isBlank, isForeignWord, isRecord } from './field-values.ts';
import type { OrderItem, OrderModifier } from './mirrored-order.ts';
import { guessBy, type OrderFields, type OrderReading, type OrderSource, type Weight } from './order.ts';

/** Values found in a record, by slot. `ranks` is set once a field was found under a name that is not its best one. */
interface Found {
  values: unknown[];
  ranks: number[] | undefined;
  /** Slots of values that were sent but are unreadable; undefined if there are none. */
  unread: number[] | undefined;
  /** Slots of values found under a name that is not the value's own; undefined if there are none. */
  guessed: Map<number, Naming> | undefined;
}

/** Finds every field of a tree in one walk over the object's names. */
function findValues(value: Record<string, unknown>, { nothing, names }: SpellingTree): Found {
  const found: Found = { values: nothing.slice(), ranks: undefined, unread: undefined, guessed: undefined };
  walk(value, names, found);
  return found;
}

/** Adds the values of an object to `found`. It runs for every callback and record, so it uses plain loops. */
function walk(value: Record<string, unknown>, names: ReadonlyMap<string, SpellingNode>, found: Found): void {
  const { values } = found;
  for (const name of Object.keys(value)) {
    const node = names.get(name);
    if (node === undefined) continue;
    const sent = value[name];
    // null means "not said", so it never deletes a known value.
    if (sent === null) continue;
    for (let i = 0; i < node.hits.length; i++) {
      const { slot, rank, kind, read, isTold, naming } = node.hits[i] as SpellingNode['hits'][number];
      const before = values[slot];
      const isLower = before !== undefined && rank >= (found.ranks?.[slot] ?? 0);
      if (isLower && worthOf(before, kind) === MOST_WORTH) continue;
      const now = read(sent);
      if (now === undefined) {
        if (!isTold || isBlank(sent)) continue;
        found.unread = [...(found.unread ?? []), slot];
        continue;
      }
      if (before !== undefined && worthOf(now, kind) - worthOf(before, kind) < (isLower ? 1 : 0)) continue;
      values[slot] = now;
      if (naming !== 'named') {
        found.guessed ??= new Map();
        found.guessed.set(slot, naming);
      } else found.guessed?.delete(slot);
      if (rank === 0 && found.ranks === undefined) continue;
      found.ranks ??= [];
      found.ranks[slot] = rank;
    }
    if (node.inside === undefined) continue;
    if (isRecord(sent)) walk(sent, node.inside, found);
    else if (node.holds !== undefined && !isReadWhole(node, sent))
      found.unread = [...(found.unread ?? []), node.holds];
  }
}

const MOST_WORTH = 2;

/**
 * Returns how much a value says, because a record may have several names of one field: an empty one says nothing, and a
 * word that the document lacks less than one of the document's.
 */
function worthOf(value: unknown, kind: FieldKind): number {
  if (isBlank(value) || (Array.isArray(value) && value.length === 0)) return 0;
  return isForeignWord(value, kind) ? 1 : MOST_WORTH;
}

/** Returns whether a value that stands in place of an object is itself readable (as in `"store": "B1"`) or empty. */
function isReadWhole({ hits }: SpellingNode, sent: unknown): boolean {
  if (isBlank(sent) || (Array.isArray(sent) && sent.length === 0)) return true;
  return hits.some(({ read }) => read(sent) !== undefined);
}

/** Adds a note for each field that was sent but is unreadable. */
function noteUnread({ values, unread }: Found, { fields }: SpellingTree, at: string, notes: string[]): void {
  if (unread === undefined) return;
  for (const slot of new Set(unread)) {
    if (values[slot] === undefined) notes.push(`${at}${fields[slot]} cannot be read`);
  }
}

/** What is noted while a part of an order is read. */
interface Seen {
  notes: string[];
  /** Names of fields that were found under a guessed name; undefined if there are none. */
  guessed: Set<string> | undefined;
  source: OrderSource;
}

/**
 * Returns the names of the fields that were found under a guessed name. A callback that sends one value in place of an
 * object of the document means what the document means.
 */
function guessedNames({ guessed }: Found, names: readonly string[], source: OrderSource): string[] {
  return [...(guessed ?? [])].flatMap(([slot, naming]) =>
    naming === 'object' && source === 'webhook' ? [] : [names[slot] as string],
  );
}

/**
 * Returns every field of the tree by name; null for a field that was not sent. What is noted is added to `seen`.
 */
function readRecord<T>(sent: Record<string, unknown>, tree: SpellingTree, at: string, seen: Seen): T {
  const found = findValues(sent, tree);
  noteUnread(found, tree, at, seen.notes);
  const { values } = found;
  const record: Record<string, unknown> = {};
  for (let slot = 0; slot < values.length; slot++) record[tree.fields[slot] as string] = values[slot] ?? null;
  for (const name of found.guessed ? guessedNames(found, tree.fields, seen.source) : NO_NAMES) {
    seen.guessed ??= new Set();
    seen.guessed.add(name);
  }
  return record as T;
}

const NO_NAMES: readonly string[] = [];

type Counts = Record<string, unknown> | null;

type SentItem = Omit<OrderItem, 'modifiers'> & { modifiers: unknown[] | null };

interface SentModifier extends Pick<OrderModifier, 'name' | 'shortName' | 'description' | 'quantity'> {
  countById: Counts;
  countByExternalId: Counts;
  price: OrderModifier['optionPrice'];
  externalId: string | null;
  options: unknown[] | null;
}

interface SentOption extends Pick<OrderModifier, 'optionId' | 'name' | 'quantity'> {
  externalId: string | null;
  price: OrderModifier['optionPrice'];
}

const UNREAD_ITEM: OrderItem = {
  productExternalId: null,
  productName: null,
  quantity: null,
  comment: null,
  unitPrice: null,
  baseUnitPrice: null,
  productPrice: null,
  productBasePrice: null,
  modifiers: [],
};

interface ReadItems {
  items: OrderItem[];
  isBrief: boolean;
  /** Names of the parts of each item that were found under a guessed name; undefined for an item without any. */
  guessed: Seen['guessed'][];
}

/**
 * Reads the items. Every entry keeps its position; an entry that is no object becomes an item without known values.
 */
function readItems(
  sent: readonly unknown[],
  spellings: OrderSpellings,
  { notes, source }: Pick<Seen, 'notes' | 'source'>,
): ReadItems {
  let isBrief = true;
  let areModifiersGuessed = false;
  const guessed: Seen['guessed'][] = [];
  const items = sent.map((each, index) => {
    const at = `item ${index + 1}`;
    const inItem: Seen = { notes, guessed: undefined, source };
    if (!isRecord(each)) {
      guessed.push(undefined);
      notes.push(`${at} is ${kindOf(each)}`);
      return UNREAD_ITEM;
    }
    const item = readRecord<SentItem>(each, spellings.item, `${at}: `, inItem);
    if (isBlank(item.productName ?? '') && item.productExternalId === null)
      notes.push(`${at} names no product`);
    if (item.quantity === null) notes.push(`${at} has no quantity`);
    else if (Number(item.quantity) < 0) notes.push(`${at} has a quantity below 0`);
    if (item.modifiers !== null) isBrief = false;
    const modifiers = readEntries(item.modifiers, `${at}: a modifier`, notes);
    const inModifiers: Seen = { notes, guessed: undefined, source };
    const rows = modifiers.flatMap((modifier) => readModifier(modifier, spellings, `${at}: `, inModifiers));
    if (inItem.guessed?.has('modifiers') || inModifiers.guessed) areModifiersGuessed = true;
    guessed.push(inItem.guessed);
    return { ...item, modifiers: rows };
  });
  // Lines without modifiers count as those with some, because a source that names one list names the others likewise.
  if (!areModifiersGuessed) return { items, isBrief, guessed };
  return { items, isBrief, guessed: guessed.map((names) => new Set(names).add('modifiers')) };
}

/** Returns whether the list says by guessed names alone what was ordered, or how many of it. */
function isListGuessed({ items, guessed }: ReadItems): boolean {
  return items.some((item, i) => {
    const isNamed = (name: 'productExternalId' | 'productName') =>
      item[name] !== null && !guessed[i]?.has(name);
    const isAnonymous = item.productExternalId === null && item.productName === null;
    return (
      guessed[i]?.has('quantity') || !(isAnonymous || isNamed('productExternalId') || isNamed('productName'))
    );
  });
}

/** Returns the weights of what was found under guessed names, for a reading of this source. */
function weightsOf(
  values: Found,
  names: readonly string[],
  lines: ReadItems | undefined,
  source: OrderSource,
): Pick<OrderReading, 'weights' | 'lineWeights'> {
  // It runs for every callback, and hardly any has a guessed name.
  const areLinesGuessed = lines?.guessed.some((names) => names !== undefined) ?? false;
  if (values.guessed === undefined && !areLinesGuessed) return {};
  const weight = guessBy(source);
  const byName = (found: Iterable<string>): Record<string, Weight> =>
    Object.fromEntries(Array.from(found, (name) => [name, weight]));
  const found = new Set(guessedNames(values, names, source));
  found.delete('orderId');
  if (lines && isListGuessed(lines)) found.add('items');
  return {
    ...(found.size > 0 && { weights: byName(found) }),
    ...(lines && areLinesGuessed && { lineWeights: lines.guessed.map((names) => byName(names ?? NO_NAMES)) }),
  };
}

/** Returns the objects of a list. Adds a note if the list has other entries. */
function readEntries(sent: unknown[] | null, name: string, notes: string[]): Record<string, unknown>[] {
  const entries = sent?.filter(isRecord) ?? [];
  if (sent && entries.length < sent.length) notes.push(`${name} cannot be read`);
  return entries;
}

/** Returns the rows of a modifier: one for each option, and one for each count without an option (see `countRows`). */
function readModifier(
  sent: Record<string, unknown>,
  spellings: OrderSpellings,
  at: string,
  seen: Seen,
): OrderModifier[] {
  const { notes } = seen;
  const modifier = readRecord<SentModifier>(sent, spellings.modifier, `${at}modifier `, seen);
  const counts: ModifierCounts = {
    byId: readCounts(modifier.countById, at, notes),
    byExternalId: readCounts(modifier.countByExternalId, at, notes),
  };
  const entries = readEntries(modifier.options, `${at}an option`, notes);
  const options = entries.map((each) => {
    const option = readRecord<SentOption>(each, spellings.option, `${at}option `, seen);
    if ((option.name ?? option.optionId ?? option.externalId) === null)
      notes.push(`${at}an option names nothing`);
    return optionRow(modifier, option, counts, entries.length === 1);
  });
  return [...options, ...countRows(modifier, options, counts)];
}

interface ModifierCounts {
  byId: ReadonlyMap<string, number | null>;
  byExternalId: ReadonlyMap<string, number | null>;
}

function optionRow(
  { name, shortName, description, externalId, quantity }: SentModifier,
  option: SentOption,
  { byId, byExternalId }: ModifierCounts,
  isOnly: boolean,
): OrderModifier {
  const only = isOnly ? (onlyOf(byId) ?? onlyOf(byExternalId) ?? quantity) : null;
  return {
    name,
    shortName,
    description,
    optionId: option.optionId,
    optionExternalId: option.externalId ?? (isOnly ? externalId : null),
    optionName: option.name,
    optionPrice: option.price,
    quantity:
      byId.get(option.optionId ?? '') ?? byExternalId.get(option.externalId ?? '') ?? option.quantity ?? only,
    modifierExternalId: externalId,
  };
}

/** Returns a row for each count that belongs to no option; one row if there are neither options nor counts. */
function countRows(
  { name, shortName, description, externalId, price, quantity }: SentModifier,
  options: readonly OrderModifier[],
  { byId, byExternalId }: ModifierCounts,
): OrderModifier[] {
  const shared = { name, shortName, description, optionName: null, optionPrice: price };
  const row = (optionId: string | null, optionExternalId: string | null, pieces: number | null) => {
    return { ...shared, optionId, optionExternalId, quantity: pieces, modifierExternalId: externalId };
  };
  const ids = [...byId].filter(([id]) => options.every(({ optionId }) => optionId !== id));
  const externalIds = [...byExternalId].filter(([id]) =>
    options.every(({ optionExternalId }) => optionExternalId !== id),
  );
  const withIds = () => ids.map(([id, pieces]) => row(id, externalId, pieces));
  const withExternalIds = () => externalIds.map(([id, pieces]) => row(null, id, pieces));
  if (options.some((option) => option.quantity !== null)) {
    // If one of the maps has the count of an option, it has all counts, so only its ids without an option become rows.
    if (ids.length < byId.size) return withIds();
    return externalIds.length < byExternalId.size ? withExternalIds() : [];
  }
  // Nothing says which id belongs to which external id, so the map with the POS's own ids is used.
  if (byId.size > 1 || byExternalId.size > 1) return externalIds.length > 0 ? withExternalIds() : withIds();
  const [[id, pieces = null] = []] = ids;
  const [[ownId, ownPieces = null] = []] = externalIds;
  const only = pieces ?? ownPieces;
  if (options.length > 0 && (options.length === 1 || only === null)) return [];
  return [row(id ?? null, externalId ?? ownId ?? null, only ?? (options.length === 0 ? quantity : null))];
}

/** Returns the quantity for each id. A quantity that cannot be read is null, and a note is added. */
function readCounts(sent: Counts, at: string, notes: string[]): ReadonlyMap<string, number | null> {
  if (sent === null) return NO_COUNTS;
  const counts = new Map<string, number | null>();
  for (const [id, value] of Object.entries(sent)) {
    const count = readNumber(typeof value === 'string' ? value.trim() : value) ?? null;
    if (count === null) notes.push(`${at}a count of a modifier cannot be read`);
    counts.set(id, count);
  }
  return counts;
}

const NO_COUNTS: ReadonlyMap<string, number | null> = new Map();

/**
 * Returns the count of a map that has only one. In the document's `countById` each count belongs to the modifier's id,
 * so a single count is the quantity of a single option.
 */
function onlyOf(counts: ReadonlyMap<string, number | null>): number | null | undefined {
  return counts.size === 1 ? counts.values().next().value : undefined;
}

/**
 * Reads a notification, or a record of GET /order/all, as an order. Never throws: an unreadable field counts as not
 * sent, and a value without an order id gives a sentence with the reason. The document shows no record of GET
 * /order/all, so a record's lines are used only if all are readable, and a record makes no order incomplete.
 */
export function readOrder(
  value: unknown,
  spellings: OrderSpellings,
  source: OrderSource = 'webhook',
): OrderReading | { unreadable: string } {
  if (!isRecord(value)) return { unreadable: `An order was expected, found ${kindOf(value)}.` };
  const sent = unwrap(value, spellings);
  const found = findValues(sent, spellings.order);
  const { values } = found;
  const [orderId, items] = values;
  if (orderId === INEXACT_ID) return { unreadable: 'The order id is a number too large to be exact.' };
  if (orderId === BROKEN_ID) return { unreadable: 'The order id is not valid text.' };
  if (typeof orderId !== 'string')
    return { unreadable: `No order id was found; its names are: ${namesOf(value)}.` };
  const fields: Record<string, unknown> = {};
  const names = spellings.order.fields;
  for (let slot = 2; slot < values.length; slot++) {
    if (values[slot] !== undefined) fields[names[slot] as string] = values[slot];
  }
  const notes: string[] = [];
  const lines = Array.isArray(items) ? readItems(items, spellings, { notes, source }) : undefined;
  const reading: OrderReading = {
    orderId,
    fields: fields as OrderFields,
    ...weightsOf(found, names, lines, source),
  };
  if (reading.fields.deliveryType === 'pickup') clearAddress(reading);
  const isUntimed = reading.fields.isScheduled === true && reading.fields.scheduledFor === undefined;
  const guessed = isUntimed ? onlyUnknownTime(sent, reading.fields, spellings) : undefined;
  if (guessed !== undefined) {
    reading.fields.scheduledFor = guessed;
    reading.weights = { ...reading.weights, scheduledFor: guessBy(source) };
  }
  if (source === 'poll') {
    if (lines && notes.length === 0) {
      reading.items = lines.items;
      if (lines.isBrief) reading.isBrief = true;
    }
    return reading;
  }
  if (lines) reading.items = lines.items;
  noteUnread(found, spellings.order, '', notes);
  if (guessed !== undefined && hasValueOf('scheduledFor', sent, spellings.order))
    notes.push('scheduledFor cannot be read, and another time stands in its place');
  // An unreadable amount or time clears the field, because the old value would look like the present one.
  for (const slot of found.unread ?? []) {
    const name = names[slot] as keyof typeof ORDER_SPELLINGS;
    if (values[slot] === undefined && CLEARED.has(ORDER_SPELLINGS[name].kind)) fields[name] = null;
  }
  if (notes.length > 0) reading.incomplete = notes;
  return reading;
}

const CLEARED: ReadonlySet<string> = new Set(['amount', 'time']);

/** Names of times that are never the scheduled time, because they are about the order's past or its data. */
const OTHER_TIMES =
  /updat|modif|creat|chang|edit|pay|paid|confirm|accept|approv|cancel|reject|refund|dispatch|delivered|ready|start|finish|clos|sent|receiv|notif|sync|expir|delet|print|last|birth|regist|valid/i;
const SCHEDULED_WITHIN_MS = 400 * 24 * 3_600_000;

/**
 * Returns the likely scheduled time: the only time after the creation that has a name which the document does not show.
 */
function onlyUnknownTime(
  sent: Record<string, unknown>,
  { createdAt, deliveryTime }: OrderFields,
  { order, readTime }: OrderSpellings,
): string | undefined {
  if (createdAt == null) return undefined;
  const times = new Set<string>();
  for (const [name, value] of Object.entries(sent)) {
    if (OTHER_TIMES.test(name) || order.names.get(name)?.hits.some(({ rank }) => rank === 0)) continue;
    const time = readTime(value);
    if (time === undefined || time === createdAt || time === deliveryTime) continue;
    const afterMs = Date.parse(time) - Date.parse(createdAt);
    if (afterMs > 0 && afterMs < SCHEDULED_WITHIN_MS) times.add(time);
  }
  const [time, ...others] = times;
  return others.length === 0 ? time : undefined;
}

const ADDRESS_FIELDS = Object.keys(ORDER_SPELLINGS).filter((name) =>
  name.startsWith('address'),
) as (keyof OrderFields)[];

/**
 * Clears the address. The platform sends none for a pickup order, so an earlier address no longer holds, if the delivery
 * type is believed.
 */
function clearAddress(reading: OrderReading): void {
  const weight = reading.weights?.deliveryType;
  for (const field of ADDRESS_FIELDS) {
    reading.fields[field] = null as never;
    if (weight !== undefined) reading.weights = { ...reading.weights, [field]: weight };
    else delete reading.weights?.[field];
  }
}

/** Reads JSON text like `readOrder`. Ids that are too large for JavaScript's numbers stay exact. */
export function readOrderText(
  raw: string,
  spellings: OrderSpellings,
  source: OrderSource = 'webhook',
): OrderReading | { unreadable: string } {
  try {
    return readSentOrder(JSON.parse(raw), raw, spellings, source);
  } catch {
    return { unreadable: 'It is not JSON.' };
  }
}

/** Reads like `readOrderText`, from a value that is parsed already. Its text `raw` may begin with a byte order mark. */
export function readSentOrder(
  value: unknown,
  raw: string,
  spellings: OrderSpellings,
  source: OrderSource = 'webhook',
): OrderReading | { unreadable: string } {
  const exact = hasLongNumber(raw) ? parseLossless(raw.replace(/^\u{FEFF}/u, '')) : value;
  return readOrder(exact, spellings, source);
}

/** Returns the order inside a wrapper object, or the value itself if it has an order id of its own. */
export function unwrap(value: Record<string, unknown>, spellings: OrderSpellings): Record<string, unknown> {
  if (Object.hasOwn(value, 'internalOrderId')) return value;
  for (const name of WRAPPER_NAMES) {
    const inside = Object.hasOwn(value, name) ? value[name] : undefined;
    if (!isRecord(inside)) continue;
    const [orderId, items, , status] = findValues(inside, spellings.order).values;
    if (typeof orderId === 'string' && (items ?? status) !== undefined) return inside;
  }
  return value;
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'a list' : `a ${typeof value}`;
}

function namesOf(value: Record<string, unknown>): string {
  const names = Object.keys(value);
  if (names.length === 0) return 'none';
  return names.slice(0, 12).join(', ').slice(0, 200) + (names.length > 12 ? ', …' : '');
}
