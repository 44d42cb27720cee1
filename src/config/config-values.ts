import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { validateDetailed } from 'node-cron';
import { z } from 'zod';
import { formatDuration, parseDurationMs } from '../domain/time/duration.ts';
import { canonicalZone } from '../domain/time/zone-calendar.ts';
import { cronSchedule } from './schedule.ts';

/**
 * The kinds of values in the file. Every schema's one message says what is allowed, so that a fault can be
 * corrected from its line alone.
 */

/** Builds a schema from a reader that gives undefined for what is not allowed. */
function reading<T>(allowed: string | ((value: unknown) => string), read: (value: unknown) => T | undefined) {
  return z.unknown().transform((value, context): T => {
    const result = read(value);
    if (result !== undefined) return result;
    context.addIssue({ code: 'custom', message: typeof allowed === 'string' ? allowed : allowed(value) });
    return z.NEVER;
  });
}

function readingText<T>(
  allowed: string | ((value: unknown) => string),
  read: (text: string) => T | undefined,
) {
  return reading(allowed, (value) => (typeof value === 'string' ? read(value) : undefined));
}

export const boolean = reading('true or false', (value) => (typeof value === 'boolean' ? value : undefined));

export function wholeNumber(min: number, max: number) {
  return reading(`a whole number from ${min} to ${max}`, (value) =>
    typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max ? value : undefined,
  );
}

export function decimal(min: number, max: number) {
  return reading(`a number from ${min} to ${max}`, (value) =>
    typeof value === 'number' && value >= min && value <= max ? value : undefined,
  );
}

export function oneOf<const T extends readonly (string | boolean)[]>(...values: T) {
  return reading(
    `one of ${values.map((value) => JSON.stringify(value)).join(', ')}`,
    (value): T[number] | undefined => values.find((candidate) => candidate === value),
  );
}

export function duration(minMs: number, maxMs: number) {
  const allowed = `a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "500ms", "1s", "2m", "1h" or "7d"`;
  return readingText(allowed, (text) => {
    const ms = parseDurationMs(text);
    return ms !== undefined && ms >= minMs && ms <= maxMs ? ms : undefined;
  });
}

/** A duration, or `"0d"` for ever; in milliseconds, 0 for ever. */
export function keepFor(minMs: number, maxMs: number) {
  const allowed = `a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "90d", or "0d" for ever`;
  return readingText(allowed, (text) => {
    const ms = parseDurationMs(text);
    return ms !== undefined && (ms === 0 || ms >= minMs) && ms <= maxMs ? ms : undefined;
  });
}

const BYTE_UNITS: Record<string, number> = {
  ...{ B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 },
  ...{ KB: 1000, MB: 1000 ** 2, GB: 1000 ** 3 },
};

/** A size as a number of bytes or as text with a unit, in bytes. */
export function byteSize(minBytes: number, maxBytes: number) {
  const allowed = `a size from ${minBytes} to ${maxBytes} bytes, such as 1048576, "512KiB" or "64MiB"`;
  return reading(allowed, (value) => {
    // A TOML table has no text: making one of it throws.
    if (typeof value !== 'number' && typeof value !== 'string') return undefined;
    const match = /^(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|KB|MB|GB)?$/.exec(String(value).trim());
    if (!match) return undefined;
    const bytes = Math.round(Number(match[1]) * (BYTE_UNITS[match[2] ?? 'B'] ?? 1));
    return bytes >= minBytes && bytes <= maxBytes ? bytes : undefined;
  });
}

/** An http or https address without a slash at its end; `baseOnly` refuses what a base address cannot carry. */
export function httpUrl(options: { baseOnly: boolean }) {
  const bare = options.baseOnly ? ', without user, query or fragment' : ', without user or fragment; or ""';
  return readingText(`an address that begins with http:// or https://${bare}`, (text) => {
    if (text === '' && !options.baseOnly) return text;
    if (!/^https?:\/\//i.test(text) || !URL.canParse(text)) return undefined;
    const url = new URL(text);
    if (url.username !== '' || url.password !== '' || text.includes('#')) return undefined;
    if (options.baseOnly) return text.includes('?') ? undefined : text.replace(/\/+$/, '');
    return text;
  });
}

/** A program and its arguments, as a list; empty: none. */
export const commandLine = reading(
  'a list with the program and its arguments, such as ["/usr/local/bin/tell", "--urgent"], or []',
  (value): readonly string[] | undefined => {
    if (!Array.isArray(value)) return undefined;
    const isWord = (word: unknown) => typeof word === 'string' && !word.includes('\0');
    return value.every(isWord) && value[0] !== '' ? (value as string[]) : undefined;
  },
);

/** Text of one line, or none. */
export const shortLine = readingText('text of one line and at most 80 characters, or ""', (text) =>
  text.length <= 80 && !/[\r\n]/.test(text) ? text : undefined,
);

export interface Listen {
  host: string;
  port: number;
}

/** `host:port`; an IPv6 host stands in brackets and is given back without them. */
export const listen = readingText(
  'host:port with a port from 0 to 65535, such as "127.0.0.1:8787" or "[::1]:8787"; port 0 picks a free one',
  (text): Listen | undefined => {
    const match = /^(?:\[([^\]]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text.trim());
    const port = Number(match?.[3]);
    if (!match || port > 65_535) return undefined;
    const [, bracketed, plain] = match;
    if (bracketed !== undefined) return isIP(bracketed) === 6 ? { host: bracketed, port } : undefined;
    const host = plain ?? '';
    const looksNumeric = /^[\d.]+$/.test(host);
    const isHost = looksNumeric ? isIP(host) === 4 : /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(host);
    return isHost ? { host, port } : undefined;
  },
);

const LISTEN_MAX = 8;

/** One `host:port` or several, none twice. */
export const listenList = z.unknown().transform((value, context): [Listen, ...Listen[]] => {
  const found = (Array.isArray(value) ? value : [value]).map((each) => listen.safeParse(each).data);
  const [first, ...others] = found.filter((each) => each !== undefined);
  const names = new Set(found.map((each) => JSON.stringify(each)));
  const isSound = found.length <= LISTEN_MAX && others.length + 1 === found.length;
  if (first && isSound && (names.size === found.length || first.port === 0)) return [first, ...others];
  const message = `host:port, or a list of up to ${LISTEN_MAX} of them, none twice, such as ["127.0.0.1:8788", "192.168.1.5:8788"]`;
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
});

/** The kernel takes no longer name for a socket. */
const SOCKET_PATH_MAX = 107;

export const optionalSocketPath = readingText(
  `an absolute path of at most ${SOCKET_PATH_MAX} bytes, such as "/run/tillsync/api.sock", or ""`,
  (text) => {
    if (text === '') return text;
    const isSound = isAbsolute(text) && !text.includes('\0') && !text.endsWith('/');
    return isSound && Buffer.byteLength(text) <= SOCKET_PATH_MAX ? text : undefined;
  },
);

const CRON_ALLOWED =
  'a cron expression of five fields (minute hour day month weekday), or six with seconds first, such as "*/2 * * * *"';

export const cron = readingText(
  (value) => {
    const errors = typeof value === 'string' ? validateDetailed(value).errors : [];
    const wrong = errors.filter((error) => error.field !== 'expression');
    if (wrong.length === 0) return CRON_ALLOWED;
    return `${CRON_ALLOWED}; wrong here: ${wrong.map((error) => `${error.field} ${error.value}`).join(', ')}`;
  },
  (text) => (validateDetailed(text).valid && isEverDue(text) ? text : undefined),
);

function isEverDue(expression: string): boolean {
  // Only a day together with a month can be one that never comes, such as the 30th of February.
  const [day, month] = expression.trim().split(/\s+/).slice(-3, -1);
  if (day === '*' || month === '*') return true;
  try {
    return cronSchedule(expression, 'UTC').nextAfter(Date.UTC(2024, 0, 1)) > 0;
  } catch {
    return false;
  }
}

export const timeZone = readingText('an IANA time zone, such as "America/Santiago" or "UTC"', (text) => {
  try {
    return text !== '' && canonicalZone(text) !== '' ? text : undefined;
  } catch {
    return undefined;
  }
});

export const absolutePath = readingText('an absolute path, such as "/var/lib/tillsync"', (text) =>
  isAbsolute(text) && !text.includes('\0') ? text : undefined,
);

export const optionalPath = readingText('an absolute path, or "" for none', (text) =>
  text === '' || (isAbsolute(text) && !text.includes('\0')) ? text : undefined,
);

export const optionalGroup = readingText('the name or number of a Unix group, or ""', (text) =>
  /^([a-z_][a-z0-9_.-]*\$?|\d+)?$/i.test(text) ? text : undefined,
);

export const urlPath = readingText('a path that begins with "/", without spaces, "?" or "#"', (text) =>
  /^\/[^\s?#]*$/.test(text) ? text : undefined,
);

/** Name of a JSON field or a query parameter. */
export const fieldName = readingText('a name of letters, digits, "_" and "-"', (text) =>
  /^[\w-]{1,64}$/.test(text) ? text : undefined,
);

export const optionalFieldName = readingText('a name of letters, digits, "_" and "-", or ""', (text) =>
  /^[\w-]{0,64}$/.test(text) ? text : undefined,
);

export const optionalDottedPath = readingText('names joined by dots, such as "data.orders", or ""', (text) =>
  text === '' || /^[^\s.]+(\.[^\s.]+)*$/.test(text) ? text : undefined,
);
