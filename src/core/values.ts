/** Returns a value as JSON text; undefined if it has none or is nested too deeply for the stack. */
export function jsonText(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

const DECIMAL = /^([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/;

/** Whether JavaScript reads a decimal text exactly, without losing digits. */
export function isExactDecimal(text: string): boolean {
  const value = Number(text);
  if (!Number.isFinite(value)) return false;
  const given = normal(text);
  return given !== undefined && given === normal(String(value));
}

/** Reads a plain decimal number (`-12`, `3.50`). Returns undefined for anything else, such as exponents and commas. */
export function parsePlainDecimal(text: string): number | undefined {
  return /^[+-]?\d+(\.\d+)?$/.test(text) && isExactDecimal(text) ? Number(text) : undefined;
}

/** Whether the point of `1.990` may group thousands; then no zero stands before it. */
export function mayBeThousands(text: string): boolean {
  return /^[+-]?[1-9]\d{0,2}\.\d{3}$/.test(text);
}

/** Returns sign, digits without outer zeros, and the point's place, so that equal numbers are equal texts. */
function normal(text: string): string | undefined {
  const match = DECIMAL.exec(text);
  if (!match) return undefined;
  const [, sign, whole = '', fraction = '', exponent = '0'] = match;
  const digits = whole + fraction;
  const first = digits.search(/[1-9]/);
  if (first === -1) return '0';
  // A loop, because /0+$/ scans again from every zero.
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  const scale = whole.length - first + Number(exponent);
  return `${sign === '-' ? '-' : ''}${digits.slice(first, end)}e${scale}`;
}

/** Levenshtein distance, with a swap of neighbours as one step. */
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

/** Languages of the page, alarms, `status` and `doctor`. */
export const LANGUAGES = ['en', 'es'] as const;
export type Language = (typeof LANGUAGES)[number];

/** Kinds of events that a hook may get. Each has its own feed of numbered events. */
export const HOOK_EVENTS = ['order', 'change.rejected'] as const;
export type EventName = (typeof HOOK_EVENTS)[number];

/** Most addresses of one hub. */
export const WAYS_MAX = 8;
/** Value in place of a PEM text; it means the authorities that the machine trusts by itself. */
export const KNOWN_AUTHORITIES = 'known';

/**
 * Whether a link may use the address. Without encryption only this machine's own may be used, since customers' orders
 * pass.
 */
export function isNatsUrl(address: string): boolean {
  const match = /^(nats|tls):\/\/(\[[^\]]+\]|[a-z0-9][a-z0-9.-]*):(\d{1,5})$/i.exec(address);
  if (!match || Number(match[3]) > 65_535) return false;
  return isSecure(address) || /^(localhost|127\.[\d.]+|\[::1\])$/i.test(match[2] ?? '');
}

export function isSecure(address: string): boolean {
  return /^tls:/i.test(address);
}

/** Fields that are new or no longer sent, by names such as `items[].product.name`, without values. */
export interface FieldNews {
  added: readonly string[];
  gone: readonly string[];
}

/** Drops fields inside another one of the set: {`a`, `a.b`} → {`a`}. */
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

/** Deeper keys are no fields of the platform's. Keys that are longer or contain a number are values used as keys. */
const DEPTH_MAX = 6;
const IS_NAME = /^(?!.*\d{3})[A-Za-z_][\w-]{0,39}$/;

/** Returns the names of all fields of a JSON text, such as `items[].product.name`. */
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
    // A payload that is not JSON has no fields.
  }
  return names;
}
