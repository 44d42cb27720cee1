import { jsonText } from '../json/json-text.ts';
import { ORDER_ID_LENGTH_MAX } from './order.ts';
import type { FieldKind } from './order-spellings.ts';

/**
 * Read one sent value as the kind its field needs. null stays null; undefined means that the value cannot be
 * read so and counts as not sent.
 */
export const SENT_VALUE_READERS: Readonly<Record<FieldKind, (value: unknown) => unknown>> = {
  id: readId,
  text: readText,
  whole: readWhole,
  amount: readAmount,
  number: readNumber,
  flag: readFlag,
  time: readTime,
  list: (value) => (Array.isArray(value) || value === null ? value : undefined),
  map: (value) => (isRecord(value) || value === null ? value : undefined),
  json: readJson,
};

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What stands for an id that was a number too large to be exact; no id begins with a space. */
export const INEXACT_ID = ' inexact';
/** What stands for an id with half a surrogate pair, which a database cannot keep: two of them would be one. */
export const BROKEN_ID = ' broken';

/** Ids are texts in the mirror. */
function readId(value: unknown): string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'number') return readNumericId(value);
  if (typeof value !== 'string') return undefined;
  const id = value.trim();
  if (!id.isWellFormed()) return BROKEN_ID;
  return id === '' || id.length > ORDER_ID_LENGTH_MAX ? undefined : id;
}

function readNumericId(value: number): string | undefined {
  if (Number.isSafeInteger(value)) return String(value);
  return Number.isInteger(value) ? INEXACT_ID : undefined;
}

function readText(value: unknown): string | null | undefined {
  if (value === null) return null;
  // Half a surrogate pair could be sent escaped, and would come back from the database as another text.
  if (typeof value === 'string') return value.toWellFormed();
  // A whole number beyond what JavaScript keeps exactly would become the text of another number.
  const isExact = typeof value === 'number' && (Number.isSafeInteger(value) || !Number.isInteger(value));
  return isExact && Number.isFinite(value) ? String(value) : undefined;
}

function readAmount(value: unknown): number | string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'string') return value.toWellFormed();
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function readWhole(value: unknown): number | null | undefined {
  if (value === null) return null;
  const number =
    typeof value === 'string' && /^#?\d{1,15}$/.test(value) ? Number(value.replace('#', '')) : value;
  return typeof number === 'number' && Number.isSafeInteger(number) ? number : undefined;
}

function readNumber(value: unknown): number | null | undefined {
  if (value === null) return null;
  const number = typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

function readFlag(value: unknown): boolean | null | undefined {
  if (value === null) return null;
  if (typeof value === 'boolean') return value;
  if (value === 1 || value === 'true' || value === '1') return true;
  return value === 0 || value === 'false' || value === '0' ? false : undefined;
}

const UTC_WITH_MS = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const ISO_WITH_ZONE = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?\s?(Z|z|[+-]\d{2}(:?\d{2})?)$/;

/** A time without a zone stays as sent: nothing says whose clock it is. */
function readTime(value: unknown): string | null | undefined {
  if (value === null) return null;
  if (typeof value === 'number')
    return epochTime(value) ?? (Number.isFinite(value) ? String(value) : undefined);
  if (typeof value !== 'string') return undefined;
  // Already as the mirror writes times, or so wrong that it stays as sent: the same text either way.
  if (value === '' || (value.length === 24 && UTC_WITH_MS.test(value))) return value;
  if (/^\d{10}(\d{3})?$/.test(value)) return epochTime(Number(value)) ?? value;
  if (!ISO_WITH_ZONE.test(value)) return value.toWellFormed();
  const normal = value
    .replace(' ', 'T')
    .replace(',', '.')
    .replace(/\s/, '')
    .replace(/([+-]\d{2})$/, '$1:00');
  const ms = Date.parse(normal);
  return Number.isNaN(ms) ? value : new Date(ms).toISOString();
}

/** Seconds and milliseconds since the epoch differ by their size from 1973 to 5138. */
function epochTime(value: number): string | undefined {
  if (value >= 1e8 && value < 1e11) return new Date(value * 1000).toISOString();
  return value >= 1e11 && value < 1e14 ? new Date(value).toISOString() : undefined;
}

function readJson(value: unknown): string | null | undefined {
  return value === null ? null : jsonText(value);
}
