import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { createTask, type ParsedFields, parse, type ScheduledTask, validateDetailed } from 'node-cron';
import * as z from 'zod';
import { TillsyncError } from '../core/errors.ts';
import { canonicalZone, formatDuration, parseDurationMs, type Schedule, zoneCalendar } from '../core/time.ts';
import { SPELLABLE_FIELDS } from '../orders/spellings.ts';
import type { BranchConfig } from './config-type.ts';

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const PUT_BACK_MAX_MS = 4 * HOUR_MS;
/** 29 February on a given weekday comes round within 40 years whatever century year lies between. */
const SEARCH_DAYS = 40 * 366;

/**
 * When a cron expression is due in a time zone, by node-cron's reading of its fields. Over daylight saving it
 * keeps what is meant: an expression for every hour follows real time; one for certain hours runs once on each
 * of its days, at the end of the gap when the clock skips its time, and only the first time when the clock
 * shows it twice. Throws `config-invalid` for an expression that can never be due.
 */
export function cronSchedule(expression: string, timezone: string): Schedule {
  const fields = sorted(parse(expression));
  const onDay = dayMatcher(expression, fields);
  const calendar = zoneCalendar(timezone);
  const everyHour = fields.hour.length === 24;
  const times = fields.hour.flatMap((hour) =>
    fields.minute.map((minute) => hour * HOUR_MS + minute * MINUTE_MS),
  );
  const seconds = fields.second.map((second) => second * SECOND_MS);

  const nextOfCertainHours = (afterMs: number): number | undefined => {
    const afterWallMs = calendar.wallMs(afterMs);
    const firstDayMs = Math.floor(afterWallMs / DAY_MS) * DAY_MS - DAY_MS;
    for (let dayMs = firstDayMs; dayMs < firstDayMs + SEARCH_DAYS * DAY_MS; dayMs += DAY_MS) {
      if (!onDay(dayMs)) continue;
      for (const time of times) {
        // What the clock showed long ago names no later instant, even when it was put back meanwhile.
        if (dayMs + time < afterWallMs - PUT_BACK_MAX_MS) continue;
        for (const second of seconds) {
          const dueMs = calendar.firstInstantMs(dayMs + time + second);
          if (dueMs > afterMs) return dueMs;
        }
      }
    }
    return undefined;
  };

  const minutes = new Set(fields.minute);
  const nextOfEveryHour = (afterMs: number): number | undefined => {
    let minuteMs = Math.floor(afterMs / MINUTE_MS) * MINUTE_MS;
    const endMs = minuteMs + SEARCH_DAYS * DAY_MS;
    while (minuteMs < endMs) {
      const wallMs = calendar.wallMs(minuteMs);
      const dayMs = Math.floor(wallMs / DAY_MS) * DAY_MS;
      if (!onDay(dayMs)) {
        minuteMs += untilNearMidnightMs(wallMs - dayMs);
        continue;
      }
      if (minutes.has(Math.floor((wallMs - dayMs) / MINUTE_MS) % 60)) {
        const due = seconds.find((second) => minuteMs + second > afterMs);
        if (due !== undefined) return minuteMs + due;
      }
      minuteMs += MINUTE_MS;
    }
    return undefined;
  };

  return {
    nextAfter(afterMs) {
      const dueMs = everyHour ? nextOfEveryHour(afterMs) : nextOfCertainHours(afterMs);
      if (dueMs !== undefined) return dueMs;
      throw new TillsyncError('config-invalid', `The cron expression "${expression}" is never due.`, {
        hint: 'Its day, month and weekday never fall together; correct it in the configuration.',
      });
    },
  };
}

/** `1,0` comes as it was written. */
function sorted(fields: ParsedFields): ParsedFields {
  const ascending = (values: number[]) => values.toSorted((a, b) => a - b);
  return {
    ...fields,
    second: ascending(fields.second),
    minute: ascending(fields.minute),
    hour: ascending(fields.hour),
  };
}

/** Strides over a day that does not match, and takes short steps near midnight, where the clock may be put. */
function untilNearMidnightMs(timeOfDayMs: number): number {
  const restMs = 21 * HOUR_MS - timeOfDayMs;
  return restMs > 15 * MINUTE_MS ? Math.floor(restMs / MINUTE_MS) * MINUTE_MS : MINUTE_MS;
}

/**
 * Whether the expression is due at some time of a day, given as that day's midnight on the clock face. Asks
 * node-cron at the first time of the day, on a clock without daylight saving.
 */
function dayMatcher(expression: string, fields: ParsedFields): (dayMs: number) => boolean {
  const firstMs =
    (fields.hour[0] ?? 0) * HOUR_MS +
    (fields.minute[0] ?? 0) * MINUTE_MS +
    (fields.second[0] ?? 0) * SECOND_MS;
  const every =
    fields.dayOfMonth.length === 31 && fields.month.length === 12 && fields.dayOfWeek.length === 7;
  if (every) return () => true;
  let known: { dayMs: number; matches: boolean } | undefined;
  const months = new Set(fields.month);
  return (dayMs) => {
    if (!months.has(new Date(dayMs).getUTCMonth() + 1)) return false;
    if (known?.dayMs !== dayMs) {
      known = { dayMs, matches: withTask(expression, (task) => task.match(new Date(dayMs + firstMs))) };
    }
    return known.matches;
  };
}

/** A task of node-cron stays in its registry for ever unless it is destroyed. */
function withTask<T>(expression: string, use: (task: ScheduledTask) => T): T {
  const task = createTask(expression, () => {}, { timezone: 'UTC' });
  try {
    return use(task);
  } finally {
    void task.destroy();
  }
}

/** The parts of the file that are lists or tables of the operator's own. */

const id = z.string({ error: 'text' }).trim().min(1, { error: 'text that is not empty' });

const branch = z
  .strictObject({ subsidiary_id: id.optional(), external_id: id.optional() }, { error: branchFault })
  .refine((value) => value.subsidiary_id !== undefined || value.external_id !== undefined, {
    error: 'a branch with subsidiary_id, external_id or both',
  })
  .transform(
    (value): BranchConfig => ({
      ...(value.subsidiary_id === undefined ? {} : { subsidiaryId: value.subsidiary_id }),
      ...(value.external_id === undefined ? {} : { externalId: value.external_id }),
    }),
  );

function branchFault(): string {
  return 'a table with subsidiary_id, external_id or both, and nothing else';
}

/** `[[branches]]`, each with an id or two, none of them twice. */
export const branches = z
  .array(branch, { error: 'a list of [[branches]] tables, each with subsidiary_id, external_id or both' })
  .superRefine((list, context) => {
    for (const name of ['subsidiaryId', 'externalId'] as const) {
      const seen = new Set<string>();
      for (const [index, { [name]: value }] of list.entries()) {
        if (value === undefined) continue;
        const path = [index, name === 'subsidiaryId' ? 'subsidiary_id' : 'external_id'];
        if (seen.has(value)) {
          context.addIssue({ code: 'custom', path, message: 'an id that no other branch has' });
        }
        seen.add(value);
      }
    }
  });

/** The field's name in the file (`item.product_name`) to its name in the domain (`item.productName`). */
const FIELD_BY_KEY = new Map(
  SPELLABLE_FIELDS.map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/** Keys that `[orders.fields]` may have. */
export const ORDER_FIELD_KEYS: readonly string[] = [...FIELD_BY_KEY.keys()];

const spelling = z.string({ error: 'text' }).regex(/^[^\s.]+(\.[^\s.]+)*$/, {
  error: 'a field name, or names joined by dots for a field inside another, such as "customer.mail"',
});

/** `[orders.fields]`: for a field, the spellings to look for before the known ones. */
export const orderFields = z
  .preprocess(
    flattened,
    z.record(
      z.string(),
      z.union([z.array(spelling), spelling.transform((one) => [one])], { error: spellingFault }),
      { error: 'a table such as { order_id = ["orderNumber"] }' },
    ),
  )
  .superRefine((table, context) => {
    for (const key of Object.keys(table)) {
      if (!FIELD_BY_KEY.has(key)) {
        context.addIssue({ code: 'unrecognized_keys', keys: [key], input: table });
      }
    }
  })
  .transform((table) =>
    Object.fromEntries(Object.entries(table).map(([key, names]) => [FIELD_BY_KEY.get(key) ?? key, names])),
  );

/** TOML reads `item.quantity = …` as a table within the table; here it is one dotted key. */
function flattened(value: unknown): unknown {
  if (!isTable(value)) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, inner]) =>
      isTable(inner)
        ? Object.entries(inner).map(([innerKey, names]): [string, unknown] => [`${key}.${innerKey}`, names])
        : [[key, inner] as [string, unknown]],
    ),
  );
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function spellingFault(): string {
  return 'a field name or a list of field names, such as ["orderNumber", "customer.mail"]';
}

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
