import { zoneCalendar } from '../../core/time.ts';
import { jsonText, readNumber } from '../../core/values.ts';
import { isKnownStatus, ORDER_ID_LENGTH_MAX, ORDER_STATUSES, type OrderStatus } from './order.ts';

/**
 * Kind of a field, which says how a sent value is read. A value that cannot be read as its kind counts as not sent.
 */
export type FieldKind =
  | 'id'
  | 'status'
  | 'delivery'
  | 'key'
  | 'text'
  | 'whole'
  | 'amount'
  | 'number'
  | 'flag'
  | 'time'
  | 'list'
  | 'map'
  | 'json';

/** Reads one sent value, which is not null. Returns undefined if the value is unreadable, which counts as not sent. */
export type ValueReader = (value: unknown) => unknown;

export const READERS: Readonly<Record<Exclude<FieldKind, 'time' | 'status'>, ValueReader>> = {
  id: readId,
  delivery: readDelivery,
  key: readKey,
  text: readText,
  whole: readWhole,
  amount: readNumber,
  number: readNumber,
  flag: readFlag,
  list: readList,
  map: (value) => (isRecord(value) ? value : undefined),
  json: jsonText,
};

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns whether the value is an empty text, which the platform sends for "none". */
export function isBlank(sent: unknown): boolean {
  return typeof sent === 'string' && sent.trim() === '';
}

/** Placeholder for an id that was sent as a number too large to be exact. A real id never begins with a space. */
export const INEXACT_ID = ' inexact';
/**
 * Placeholder for an id with half a surrogate pair or a NUL, because the database would store two such ids as the
 * same.
 */
export const BROKEN_ID = ' broken';

/** Reads an id. Ids are texts in the mirror, so 7 becomes "7". */
function readId(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  if (typeof value === 'number') return Number.isInteger(value) ? INEXACT_ID : undefined;
  if (typeof value !== 'string') return undefined;
  const id = value.trim();
  if (!id.isWellFormed() || id.includes('\0')) return BROKEN_ID;
  return id === '' || id.length > ORDER_ID_LENGTH_MAX ? undefined : id;
}

function readText(value: unknown): string | undefined {
  // The database would return half a surrogate pair as another text, and SQL functions and receipt printers end a text
  // at a NUL, so both are replaced.
  if (typeof value === 'string') {
    const text = value.toWellFormed();
    // Every text of an order passes here, and `replaceAll` takes three times as long as `includes`.
    return text.includes('\0') ? text.replaceAll('\0', '\uFFFD') : text;
  }
  // An integer too large for JavaScript would become the text of another number.
  const isExact = Number.isSafeInteger(value) || !Number.isInteger(value);
  return isExact && Number.isFinite(value) ? String(value) : undefined;
}

const STATUS_OF: ReadonlyMap<string, OrderStatus> = new Map(
  ORDER_STATUSES.map((status) => [status.toLowerCase(), status]),
);

/** Words of the platform for statuses of the document, from the configuration: {PENDIENTE: 'pending'}. */
export type StatusWords = Readonly<Record<string, OrderStatus>>;

/**
 * Returns a reader of statuses: "Ready " becomes `ready`, and a word of `words` the status that it stands for. Another
 * word is kept as sent.
 */
export function statusReader(words: StatusWords): ValueReader {
  const known = new Map([
    ...Object.entries(words).map(([word, status]) => [word.trim().toLowerCase(), status] as const),
    ...STATUS_OF,
  ]);
  return (value) => {
    const text = readText(value)?.trim();
    if (text === undefined || text === '') return undefined;
    return known.get(text.toLowerCase()) ?? text;
  };
}

/** Reads the id of a branch, product or option. Surrounding blanks are removed; an empty id counts as not sent. */
function readKey(value: unknown): string | undefined {
  const key = readText(value)?.trim();
  return key === '' ? undefined : key;
}

const DELIVERIES: readonly string[] = ['delivery', 'pickup'];

/** Reads a delivery type: "Pickup " becomes `pickup`. A type that the document does not name is kept as sent. */
function readDelivery(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  const word = value.trim().toLowerCase();
  return DELIVERIES.includes(word) ? word : readText(value);
}

/** Returns whether a value is a word in a field whose words the document names, and none of these. */
export function isForeignWord(value: unknown, kind: FieldKind): boolean {
  if (typeof value !== 'string') return false;
  if (kind === 'status') return !isKnownStatus(value);
  return kind === 'delivery' && !DELIVERIES.includes(value);
}

/** Reads a list. A map of objects counts as the list of its values: {"0": {…}, "1": {…}} → [{…}, {…}]. */
function readList(value: unknown): unknown[] | undefined {
  if (Array.isArray(value)) return value;
  if (!isRecord(value)) return undefined;
  const entries = Object.values(value);
  return entries.some(isRecord) && entries.every((entry) => entry === null || isRecord(entry))
    ? entries
    : undefined;
}

function readWhole(value: unknown): number | undefined {
  const isText = typeof value === 'string' && /^#?\d{1,15}$/.test(value);
  const number = isText ? Number(value.replace('#', '')) : value;
  return Number.isSafeInteger(number) ? (number as number) : undefined;
}

function readFlag(value: unknown): boolean | undefined {
  if (value === true || value === 1 || value === 'true' || value === '1') return true;
  return value === false || value === 0 || value === 'false' || value === '0' ? false : undefined;
}

/**
 * Readers of times: each form that a platform may send becomes ISO 8601 in UTC. Anything else becomes undefined,
 * because a POS that sorts by a time column must find only times there.
 */

const UTC_WITH_MS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
/**
 * Like `UTC_WITH_MS`, with a day from 1 to 28, which exists in every month, so that the date needs no further check.
 */
const SURE_UTC = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;
const CLOCK = String.raw`(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:\s*([ap])\.?\s?m\.?)?`;
const ZONE = String.raw`(?:\s?(Z|[+-]\d{2}(?::?\d{2})?))?`;
const YEAR_FIRST = new RegExp(String.raw`^(\d{4})[-/](\d{1,2})[-/](\d{1,2})(?:T|,?\s+)${CLOCK}${ZONE}$`, 'i');
/** Dates with the day before the month, as in the platform's country. So 11/23/2026 is no date. */
const DAY_FIRST = new RegExp(
  String.raw`^(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?:T|,?\s+)${CLOCK}${ZONE}$`,
  'i',
);
/** Dates as programs print them: `Mon, 23 Nov 2026 10:00:00 GMT`, `Mon Nov 23 2026 10:00:00 GMT-0300 (…)`. */
const PRINTED = /^[A-Z][a-z]{2},? .*\d{2}:\d{2}:\d{2} (?:GMT|UTC)\b/;
const SENT_LENGTH_MAX = 80;

/**
 * Returns a reader of times. A time without a zone is read in `timezone`; if that is undefined, the time is
 * unreadable.
 */
export function timeReader(timezone: string | undefined): (value: unknown) => string | undefined {
  return (value) => {
    if (typeof value === 'number') return epochTime(value);
    if (typeof value !== 'string' || value.length > SENT_LENGTH_MAX) return undefined;
    // Most times have the mirror's form already. `toISOString` turns a 31 February into another day, so the comparison
    // rejects such a time.
    if (value.length === 24 && SURE_UTC.test(value)) return value;
    if (value.length === 24 && UTC_WITH_MS.test(value)) {
      const ms = Date.parse(value);
      return Number.isNaN(ms) || new Date(ms).toISOString() !== value ? undefined : value;
    }
    const sent = value.trim();
    if (/^\d{10}(\d{3})?$/.test(sent)) return epochTime(Number(sent));
    const yearFirst = YEAR_FIRST.exec(sent);
    if (yearFirst) {
      const [, year, month, day, ...rest] = yearFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    const dayFirst = DAY_FIRST.exec(sent);
    if (dayFirst) {
      const [, day, month, year, ...rest] = dayFirst;
      return clockTime([year, month, day], rest, timezone);
    }
    return PRINTED.test(sent) ? isoOf(Date.parse(sent)) : undefined;
  };
}

type Part = string | undefined;

function clockTime(
  [year, month, day]: readonly Part[],
  [hours, minutes, seconds = '0', fraction = '0', half, zone]: readonly Part[],
  timezone: string | undefined,
): string | undefined {
  const twelve = half === undefined ? Number(hours) : twelveHours(Number(hours), half);
  if (twelve === undefined || twelve > 23 || Number(minutes) > 59 || Number(seconds) > 59) return undefined;
  const dayMs = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const isDay =
    new Date(dayMs).getUTCDate() === Number(day) && new Date(dayMs).getUTCMonth() === Number(month) - 1;
  if (!isDay) return undefined;
  const wallMs =
    dayMs +
    ((twelve * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 +
    Math.trunc(Number(`0.${fraction}`) * 1000);
  if (zone !== undefined) return isoOf(wallMs - offsetMs(zone));
  return timezone === undefined ? undefined : isoOf(zoneCalendar(timezone).firstInstantMs(wallMs));
}

function twelveHours(hours: number, half: string): number | undefined {
  if (hours < 1 || hours > 12) return undefined;
  return (hours % 12) + (half.toLowerCase() === 'p' ? 12 : 0);
}

function offsetMs(zone: string): number {
  if (zone.toUpperCase() === 'Z') return 0;
  const minutes = Number(zone.slice(1, 3)) * 60 + Number(zone.slice(3).replace(':', '') || 0);
  return (zone.startsWith('-') ? -minutes : minutes) * 60_000;
}

/**
 * Reads a number as seconds or milliseconds since 1970. For times from 1973 to 5138, the size shows which of the two is
 * meant.
 */
function epochTime(value: number): string | undefined {
  if (value >= 1e8 && value < 1e11) return isoOf(value * 1000);
  return value >= 1e11 && value < 1e14 ? isoOf(value) : undefined;
}

function isoOf(ms: number): string | undefined {
  return Number.isNaN(ms) ? undefined : new Date(ms).toISOString();
}
