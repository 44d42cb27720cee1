import type { RecordList, ScannedAnswer } from '../json/json-records.ts';
import type { OrderReading } from './order.ts';

export interface ListChoice {
  /** Path from the config; empty: none is configured. A leading `$` or the word `root` names the root. */
  listPath: string;
  /** Reads one element of a list as an order; undefined when no order id is in it. */
  read: (list: RecordList, index: number) => OrderReading | undefined;
}

/** Names under which a list of orders is likely, best first; the root's own name is empty. */
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

/** Lists that are empty while all is well, and hold no orders when they are not. */
const OTHER_NAMES = new Set(['errors', 'warnings', 'messages', 'links', 'filters', 'tags']);

const SAMPLES = 20;

/**
 * Finds the list of orders in an answer of GET /order/all, whose body is not shown: the configured path first,
 * then lists by their name and by what can be read from their elements. An empty list counts when its name, or
 * being the only one, makes it likely. undefined: there is none, so nothing can be said of the answer.
 */
export function chooseOrderList(answer: ScannedAnswer, choice: ListChoice): RecordList | undefined {
  const configured = normalPath(choice.listPath);
  const path = answer.lists.find((each) => each.path === configured);
  if (path && (path.length === 0 || some(path, choice, () => true))) return path;

  const lists = [...answer.lists].sort((a, b) => rankOf(a) - rankOf(b) || depthOf(a) - depthOf(b));
  const likely = lists.filter(isLikely);
  const others = lists.filter((list) => !isLikely(list) && !OTHER_NAMES.has(lastName(list)));
  const filled =
    likely.find((list) => some(list, choice, () => true)) ??
    others.find((list) => some(list, choice, looksLikeOrder));
  if (filled && (isLikely(filled) || !likely.some((list) => list.length === 0))) return filled;
  // A filled list nobody can read may hold the orders, so an empty one beside it proves nothing.
  if (answer.hints.success === false || likely.some((list) => list.length > 0)) return undefined;
  return likely[0] ?? (others.length === 1 && others[0]?.length === 0 ? others[0] : undefined);
}

/** In a list of any name an id is not enough: branches and customers have ids too. */
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

function lastName(list: RecordList): string {
  return list.path.slice(list.path.lastIndexOf('.') + 1);
}

/** Tries elements spread over the whole list. */
function some(list: RecordList, choice: ListChoice, accept: (reading: OrderReading) => boolean): boolean {
  const step = Math.max(1, Math.floor(list.length / SAMPLES));
  for (let index = 0; index < list.length; index += step) {
    const reading = choice.read(list, index);
    if (reading && accept(reading)) return true;
  }
  return false;
}

function normalPath(path: string): string | undefined {
  const trimmed = path.trim();
  if (trimmed === '') return undefined;
  return trimmed === 'root' ? '' : trimmed.replace(/^\$\.?/, '');
}
