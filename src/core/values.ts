/** Returns a value as JSON text; undefined if the value has none, such as a function, or is nested too deeply. */
export function jsonText(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

const LONG_NUMBER = /[:,[]\s*-?\d{16}/;

/** Whether a JSON text may have an integer that is too large for JavaScript's numbers. */
export function hasLongNumber(text: string): boolean {
  return LONG_NUMBER.test(text);
}

/** Finds each text and each number in JSON text. */
const TEXT_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;

/**
 * Parses JSON text. An integer too large for JavaScript becomes the text of its digits, because it may be an id:
 * `{"id": 12345678901234567890}` → `{ id: '12345678901234567890' }`.
 */
export function parseLossless(text: string): unknown {
  const value: unknown = JSON.parse(text);
  // A reviver could do the same, but `JSON.parse` with one throws for deep nesting.
  return hasLongNumber(text) ? JSON.parse(text.replace(TEXT_OR_NUMBER, quotedIfLong)) : value;
}

function quotedIfLong(token: string): string {
  return /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token;
}

const DECIMAL = /^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** Whether a decimal text becomes a JavaScript number without losing digits. */
export function isExactDecimal(text: string): boolean {
  const value = Number(text);
  if (!Number.isFinite(value)) return false;
  const given = normal(text);
  return given !== undefined && given === normal(String(value));
}

/**
 * Parses a plain decimal number (`-12`, `3.50`). Returns undefined for any other text, for example with an exponent or
 * a comma.
 */
export function parsePlainDecimal(text: string): number | undefined {
  return /^[+-]?\d+(\.\d+)?$/.test(text) && isExactDecimal(text) ? Number(text) : undefined;
}

/**
 * Reads a number that was sent as a number or as plain decimal text (`-12`, ` 3.50 `). Returns undefined for anything
 * else: the comma in `5990,55` and the point in `1.990,00` are ambiguous.
 */
export function readNumber(value: unknown): number | undefined {
  const isDecimal = typeof value === 'string' && /^\s*-?\d+(\.\d+)?\s*$/.test(value);
  const number = isDecimal ? Number(value) : value;
  return Number.isFinite(number) ? (number as number) : undefined;
}

/** Whether the point in a text such as `1.990` may separate thousands. It cannot after a leading zero. */
export function mayBeThousands(text: string): boolean {
  return /^[+-]?[1-9]\d{0,2}\.\d{3}$/.test(text);
}

/**
 * Returns a decimal text in a canonical form: sign, digits without outer zeros, and exponent. Equal numbers have equal
 * forms.
 */
function normal(text: string): string | undefined {
  const match = DECIMAL.exec(text);
  if (!match) return undefined;
  const [, sign, whole = '', fraction = '', exponent = '0'] = match;
  const digits = whole + fraction;
  const first = digits.search(/[1-9]/);
  if (first === -1) return '0';
  // A loop, because /0+$/ would scan again from every zero.
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  const scale = whole.length - first + Number(exponent);
  return `${sign === '-' ? '-' : ''}${digits.slice(first, end)}e${scale}`;
}

/** Returns the Levenshtein distance of two texts. A swap of neighbouring letters counts as one step. */
export function editDistance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const change = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = isSwap ? at(i - 2, j - 2) + 1 : change;
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, change, swap));
    }
  }
  return at(a.length, b.length);
}

/** Languages of the page, of alarms, and of the commands `status` and `doctor`. */
export const LANGUAGES = ['en', 'es'] as const;
export type Language = (typeof LANGUAGES)[number];

/** Kinds of events that a hook may get. */
export const HOOK_EVENTS = [
  'order',
  'order.prepare',
  'order.changed',
  'order.undone',
  'change.rejected',
] as const;
export type EventName = (typeof HOOK_EVENTS)[number];
/**
 * Feeds of numbered events, each with a cursor of its own. The three events of a preparation share one feed, named by
 * the first, because a change must not overtake its order.
 */
export type FeedName = 'order' | 'order.prepare' | 'change.rejected';

export function feedOf(event: EventName): FeedName {
  return event === 'order.changed' || event === 'order.undone' ? 'order.prepare' : event;
}

/** Maximum number of addresses that one hub may have. */
export const WAYS_MAX = 8;

/**
 * Whether a link may use the address. Without encryption, only addresses of this machine are accepted, because
 * customers' orders pass through the link.
 */
export function isNatsUrl(address: string): boolean {
  const match = /^(nats|tls):\/\/(\[[^\]]+\]|[a-z0-9][a-z0-9.-]*):(\d{1,5})$/i.exec(address);
  if (!match || Number(match[3]) > 65_535) return false;
  return isSecure(address) || /^(localhost|127\.[\d.]+|\[::1\])$/i.test(match[2] ?? '');
}

export function isSecure(address: string): boolean {
  return /^tls:/i.test(address);
}

/**
 * Names of fields that the platform newly sends or no longer sends, such as `items[].product.name`. They contain no
 * values.
 */
export interface FieldNews {
  added: readonly string[];
  gone: readonly string[];
}

/** Returns the names that are not inside another name of the set: {`a`, `a.b`} → {`a`}. */
export function topmost(names: ReadonlySet<string>): string[] {
  const isWithin = (name: string) =>
    [...names].some(
      (other) => name !== other && /^[.[]/.test(name.slice(other.length)) && name.startsWith(other),
    );
  return [...names].filter((name) => !isWithin(name)).sort();
}

/** Returns, for each name, the number of sets that contain it. */
export function countsOf(all: readonly ReadonlySet<string>[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const names of all) for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/**
 * Depth to which fields are read, and pattern of their names. A property whose name does not match, such as one with
 * three digits in a row, is skipped, because the name may be an id.
 */
const DEPTH_MAX = 6;
const IS_NAME = /^(?!.*\d{3})[A-Za-z_][\w-]{0,39}$/;

/** Returns the names of all fields in a JSON text, such as `items[].product.name`. */
export function fieldsOf(payload: string): ReadonlySet<string> {
  const names = new Set<string>();
  const walk = (value: unknown, at: string, depth: number): void => {
    if (depth > DEPTH_MAX || typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) {
      for (const each of value) walk(each, `${at}[]`, depth + 1);
      return;
    }
    for (const [key, each] of Object.entries(value)) {
      if (!IS_NAME.test(key)) continue;
      const name = at === '' ? key : `${at}.${key}`;
      names.add(name);
      walk(each, name, depth + 1);
    }
  };
  try {
    walk(JSON.parse(payload), '', 0);
  } catch {
    // Text that is not JSON has no fields.
  }
  return names;
}
