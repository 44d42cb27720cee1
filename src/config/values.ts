import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { validateDetailed } from 'node-cron';
import * as z from 'zod';
import { canonicalZone, formatDuration, parseDurationMs } from '../core/time.ts';
import { HOOK_EVENTS, isNatsUrl, WAYS_MAX } from '../core/values.ts';
import { SPELLABLE_FIELDS } from '../orders/merging/field-aliases.ts';
import { ORDER_STATUSES } from '../orders/merging/order.ts';
import { cronSchedule } from './schedule.ts';

/**
 * Defines one kind of value. Its message lists what is allowed, so that one line is enough to correct a fault. `read`
 * returns undefined for a value that is not allowed.
 */
function kind<T>(allowed: string | ((value: unknown) => string), read: (value: unknown) => T | undefined) {
  return z.unknown().transform((value, context): T => {
    const result = read(value);
    if (result !== undefined) return result;
    context.addIssue({ code: 'custom', message: typeof allowed === 'string' ? allowed : allowed(value) });
    return z.NEVER;
  });
}

function text(allowed: string | ((value: unknown) => string), is: RegExp | ((text: string) => boolean)) {
  const test = is instanceof RegExp ? (value: string) => is.test(value) : is;
  return kind(allowed, (value) => (typeof value === 'string' && test(value) ? value : undefined));
}

export const boolean = kind('true or false', (value) => (typeof value === 'boolean' ? value : undefined));

export function decimal(min: number, max: number) {
  return kind(`a number from ${min} to ${max}`, (value) =>
    typeof value === 'number' && value >= min && value <= max ? value : undefined,
  );
}

export function wholeNumber(min: number, max: number) {
  return kind(`a whole number from ${min} to ${max}`, (value) =>
    Number.isInteger(value) && Number(value) >= min && Number(value) <= max ? Number(value) : undefined,
  );
}

export function oneOf<const T extends readonly (string | boolean)[]>(...values: T) {
  return kind(
    `one of ${values.map((value) => JSON.stringify(value)).join(', ')}`,
    (value): T[number] | undefined => values.find((candidate) => candidate === value),
  );
}

const SECOND = 1_000;
const DAY = 86_400_000;

/** A duration written as text, such as `"2m"`; read as milliseconds. */
export function duration(minMs: number, maxMs: number) {
  const allowed = `a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "500ms", "1s", "2m", "1h" or "7d"`;
  return kind(allowed, (value) => {
    const ms = typeof value === 'string' ? parseDurationMs(value) : undefined;
    return ms !== undefined && ms >= minMs && ms <= maxMs ? ms : undefined;
  });
}

/** A duration, or `"auto"`. */
export function autoOrDuration(minMs: number, maxMs: number) {
  const allowed = `"auto", or a duration from ${formatDuration(minMs)} to ${formatDuration(maxMs)}, such as "30m"; "0s": never`;
  return kind<'auto' | number>(allowed, (value) => {
    if (value === 'auto') return value;
    const ms = typeof value === 'string' ? parseDurationMs(value) : undefined;
    return ms !== undefined && ms >= minMs && ms <= maxMs ? ms : undefined;
  });
}

/** A duration of at least one day, read as milliseconds. `"0d"` means for ever and is read as 0. */
export const keepFor = kind(
  `a duration from 1d to ${formatDuration(3650 * DAY)}, such as "90d", or "0d" for ever`,
  (value) => {
    const ms = typeof value === 'string' ? parseDurationMs(value) : undefined;
    return ms !== undefined && (ms === 0 || ms >= DAY) && ms <= 3650 * DAY ? ms : undefined;
  },
);

const MIB = 1024 ** 2;
const BYTE_UNITS: Record<string, number> = {
  B: 1,
  KiB: 1024,
  MiB: MIB,
  GiB: 1024 ** 3,
  KB: 1000,
  MB: 1000 ** 2,
  GB: 1000 ** 3,
};

/** A size as a number of bytes or a text with a unit; read as bytes. */
export function byteSize(minBytes: number, maxBytes: number) {
  const allowed = `a size from ${minBytes} to ${maxBytes} bytes, such as 1048576, "512KiB" or "64MiB"`;
  return kind(allowed, (value) => {
    // Other values are refused first, because String() throws for a TOML table.
    if (typeof value !== 'number' && typeof value !== 'string') return undefined;
    const match = /^(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|KB|MB|GB)?$/.exec(String(value).trim());
    if (!match) return undefined;
    const bytes = Math.round(Number(match[1]) * (BYTE_UNITS[match[2] ?? 'B'] ?? 1));
    return bytes >= minBytes && bytes <= maxBytes ? bytes : undefined;
  });
}

/** Whether a text is an http or https address without user, password and fragment. */
export function isHttpUrl(address: string): boolean {
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address) || address.includes('#')) return false;
  const { username, password } = new URL(address);
  return username === '' && password === '';
}

const HTTP = 'an address that begins with http:// or https://, without user';

/** A base address; read without slashes at its end. */
export const baseUrl = kind(`${HTTP}, query or fragment`, (value) =>
  typeof value === 'string' && isHttpUrl(value) && !value.includes('?')
    ? value.replace(/\/+$/, '')
    : undefined,
);

export const optionalUrl = text(`${HTTP} or fragment; or ""`, (value) => value === '' || isHttpUrl(value));

/** A program and its arguments; an empty list means that none is run. */
export const commandLine = kind(
  'a list with the program and its arguments, such as ["/usr/local/bin/tell", "--urgent"], or []',
  (value): string[] | undefined => {
    if (!Array.isArray(value)) return undefined;
    const isWord = (word: unknown) => typeof word === 'string' && !word.includes('\0');
    return value.every(isWord) && value[0] !== '' ? value : undefined;
  },
);

export const optionalRecipient = text(
  'a recipient of age, "age1" and 58 characters, or ""',
  /^(age1[02-9ac-hj-np-z]{58})?$/,
);

export const shortLine = text('text of one line and at most 80 characters, or ""', /^[^\r\n]{0,80}$/);

export const optionalCurrency = text(
  'a currency code of ISO 4217, such as "CLP" or "USD", or ""',
  (code) => code === '' || Intl.supportedValuesOf('currency').includes(code),
);

export interface Listen {
  host: string;
  port: number;
}

/** Reads `host:port`. An IPv6 host is written in brackets and read without them. */
function listenOf(value: unknown): Listen | undefined {
  if (typeof value !== 'string') return undefined;
  const match = /^(?:\[([^\]]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(value.trim());
  const port = Number(match?.[3]);
  if (!match || port > 65_535) return undefined;
  const [, bracketed, host = ''] = match;
  if (bracketed !== undefined) return isIP(bracketed) === 6 ? { host: bracketed, port } : undefined;
  const looksNumeric = /^[\d.]+$/.test(host);
  const isHost = looksNumeric ? isIP(host) === 4 : /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/i.test(host);
  return isHost ? { host, port } : undefined;
}

export const listen = kind(
  'host:port with a port from 0 to 65535, such as "127.0.0.1:8787" or "[::1]:8787"; port 0 picks a free one',
  listenOf,
);

const LISTEN_MAX = 8;

/** One listen address or a list of different ones. */
export const listenList = kind(
  `host:port, or a list of up to ${LISTEN_MAX} of them, none twice, such as ["127.0.0.1:8788", "192.168.1.5:8788"]`,
  (value): [Listen, ...Listen[]] | undefined => {
    const found = (Array.isArray(value) ? value : [value]).map(listenOf);
    const [first, ...others] = found.filter((each) => each !== undefined);
    if (!first || others.length + 1 !== found.length || found.length > LISTEN_MAX) return undefined;
    const names = new Set(found.map((each) => JSON.stringify(each)));
    return names.size === found.length || first.port === 0 ? [first, ...others] : undefined;
  },
);

/** Longest path of a Unix socket, in bytes, that Linux allows. */
const SOCKET_PATH_MAX = 107;

const isPath = (value: string) => isAbsolute(value) && !value.includes('\0');
export const absolutePath = text('an absolute path, such as "/var/lib/tillsync"', isPath);
export const optionalPath = text(
  'an absolute path, or "" for none',
  (value) => value === '' || isPath(value),
);
export const optionalSocketPath = text(
  `an absolute path of at most ${SOCKET_PATH_MAX} bytes, such as "/run/tillsync/api.sock", or ""`,
  (value) =>
    value === '' || (isPath(value) && !value.endsWith('/') && Buffer.byteLength(value) <= SOCKET_PATH_MAX),
);
export const optionalGroup = text(
  'the name or number of a Unix group, or ""',
  /^([a-z_][a-z0-9_.-]*\$?|\d+)?$/i,
);
export const urlPath = text('a path that begins with "/", without spaces, "?" or "#"', /^\/[^\s?#]*$/);
/** Name of a JSON field or a query parameter. */
export const fieldName = text('a name of letters, digits, "_" and "-"', /^[\w-]{1,64}$/);
export const optionalFieldName = text('a name of letters, digits, "_" and "-", or ""', /^[\w-]{0,64}$/);
export const optionalDottedPath = text(
  'names joined by dots, such as "data.orders", or ""',
  /^([^\s.]+(\.[^\s.]+)*)?$/,
);

const CRON_ALLOWED =
  'a cron expression of five fields (minute hour day month weekday), or six with seconds first, such as "*/2 * * * *"';

export const cron = text(
  (value) => {
    const errors = typeof value === 'string' ? validateDetailed(value).errors : [];
    const wrong = errors.filter((error) => error.field !== 'expression');
    if (wrong.length === 0) return CRON_ALLOWED;
    return `${CRON_ALLOWED}; wrong here: ${wrong.map((error) => `${error.field} ${error.value}`).join(', ')}`;
  },
  (expression) => validateDetailed(expression).valid && isEverDue(expression),
);

function isEverDue(expression: string): boolean {
  // Only an expression that restricts both day and month can be impossible, such as the 30th of February.
  const [day, month] = expression.trim().split(/\s+/).slice(-3, -1);
  return day === '*' || month === '*' || !throws(() => cronSchedule(expression, 'UTC').nextAfter(0));
}

function throws(action: () => unknown): boolean {
  try {
    action();
    return false;
  } catch {
    return true;
  }
}

export const timeZone = text(
  'an IANA time zone, such as "America/Santiago" or "UTC"',
  (zone) => zone !== '' && !throws(() => canonicalZone(zone)),
);

/** Address of the NATS server between a hub and its branches; '' if there is none. */
export const optionalNatsUrl = text(
  'an address such as "tls://hub.example.com:4222", or "nats://127.0.0.1:4222" on the same machine; or ""',
  (value) => value === '' || isNatsUrl(value),
);

function textList(allowed: string, max: number, isItem: (item: string) => boolean) {
  return kind(`${allowed}, none twice`, (value): string[] | undefined => {
    const items: unknown[] = Array.isArray(value) ? value : value === '' ? [] : [value];
    const found = items.filter((item): item is string => typeof item === 'string' && isItem(item));
    const isWhole = found.length === items.length && new Set(found).size === found.length;
    return isWhole && found.length <= max ? found : undefined;
  });
}

export const natsUrls = textList(
  `an address such as "tls://hub.example.com:4222", or "nats://127.0.0.1:4222" on the same machine, or a list of up to ${WAYS_MAX} of them`,
  WAYS_MAX,
  isNatsUrl,
);

export const optionalBranchName = text('a name of letters, digits, "_" and "-", or ""', /^[\w-]{0,64}$/);

const id = z.string({ error: 'text' }).trim().min(1, { error: 'text that is not empty' });

/** Safety stock: number of pieces that are never offered. */
export const safety = decimal(0, 1_000_000);

const branch = z
  .strictObject(
    {
      subsidiary_id: id.optional(),
      external_id: id.optional(),
      safety: safety.optional(),
      may_price: z.boolean({ error: 'true or false' }).optional(),
      watched: z.boolean({ error: 'true or false' }).optional(),
    },
    { error: () => 'a table with subsidiary_id, external_id or both, safety, may_price and watched' },
  )
  .refine((value) => value.subsidiary_id !== undefined || value.external_id !== undefined, {
    error: 'a branch with subsidiary_id, external_id or both',
  })
  .refine(({ safety, subsidiary_id }) => safety === undefined || subsidiary_id !== undefined, {
    error: 'a branch with safety has a subsidiary_id too: the platform names its stocks by that',
  })
  .transform(
    ({
      subsidiary_id,
      external_id,
      safety,
      may_price,
      watched,
    }): {
      subsidiaryId?: string;
      externalId?: string;
      safety?: number;
      mayPrice?: boolean;
      watched?: boolean;
    } => ({
      ...(subsidiary_id !== undefined && { subsidiaryId: subsidiary_id }),
      ...(external_id !== undefined && { externalId: external_id }),
      ...(safety !== undefined && { safety }),
      ...(may_price !== undefined && { mayPrice: may_price }),
      ...(watched !== undefined && { watched }),
    }),
  );

/** List of branches. Two branches must not have the same id. */
export const branches = z
  .array(branch, { error: 'a list of [[branches]] tables, each with subsidiary_id, external_id or both' })
  .superRefine((list, context) => {
    for (const [name, key] of [
      ['subsidiaryId', 'subsidiary_id'],
      ['externalId', 'external_id'],
    ] as const) {
      for (const [index, { [name]: value }] of list.entries()) {
        if (value === undefined || list.findIndex((other) => other[name] === value) === index) continue;
        context.addIssue({
          code: 'custom',
          path: [index, key],
          message: 'an id that no other branch has',
        });
      }
    }
  });

/** Keys that a `[[hooks]]` table may have. */
export const HOOK_KEYS: readonly string[] = [
  'name',
  'url',
  'command',
  'events',
  'statuses',
  'prepare_before',
  'from',
  'timeout',
];

const HOOK_TABLE = `a [[hooks]] table with ${HOOK_KEYS.join(', ')}`;

const hook = z
  .strictObject(
    {
      name: text(
        'a name of up to 40 small letters, digits and "-", which begins with a letter, such as "printer"',
        /^[a-z][a-z0-9-]{0,39}$/,
      ),
      url: z.prefault(optionalUrl, ''),
      command: z.prefault(commandLine, []),
      events: z.prefault(
        kind(
          `a list of one or more of ${HOOK_EVENTS.map((name) => JSON.stringify(name)).join(', ')}`,
          (value) =>
            Array.isArray(value) &&
            value.length > 0 &&
            value.every((each) => HOOK_EVENTS.some((name) => name === each))
              ? HOOK_EVENTS.filter((name) => value.includes(name))
              : undefined,
        ),
        ['order'],
      ),
      statuses: z.prefault(
        kind('a list of statuses such as ["payment-approved", "cancel"], or [] for every event', (value) =>
          Array.isArray(value) &&
          value.every((each): each is string => typeof each === 'string' && each !== '')
            ? value
            : undefined,
        ),
        [],
      ),
      prepare_before: z.prefault(duration(0, 7 * 24 * 3600 * SECOND), '20m'),
      from: z.prefault(oneOf('now', 'start'), 'now'),
      timeout: z.prefault(duration(SECOND, 5 * 60 * SECOND), '30s'),
    },
    { error: () => HOOK_TABLE },
  )
  .refine(({ url, command }) => (url === '') !== (command.length === 0), {
    path: ['url'],
    error: 'an address, or a command beside it, and not both',
  })
  .refine(
    ({ events, statuses }) => statuses.length === 0 || events.some((each) => each !== 'change.rejected'),
    {
      path: ['statuses'],
      error: '[], because a hook with only "change.rejected" in events gets no order',
    },
  )
  .transform(({ timeout: timeoutMs, prepare_before: prepareBeforeMs, ...rest }) => ({
    ...rest,
    prepareBeforeMs,
    timeoutMs,
  }));

/** List of hooks with different names. */
export const hooks = z.array(hook, { error: `a list, each ${HOOK_TABLE}` }).superRefine((list, context) => {
  for (const [index, { name }] of list.entries()) {
    if (list.findIndex((other) => other.name === name) === index) continue;
    context.addIssue({ code: 'custom', path: [index, 'name'], message: 'a name that no other hook has' });
  }
});

/** Names of fields in the code, by their names in the file: `item.product_name` → `item.productName`. */
const FIELD_BY_KEY = new Map(
  SPELLABLE_FIELDS.map((name) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), name]),
);

/** Keys that `[orders.fields]` may have. */
export const ORDER_FIELD_KEYS: readonly string[] = [...FIELD_BY_KEY.keys()];

const spelling = z.string({ error: 'text' }).regex(/^[^\s.]+(\.[^\s.]+)*$/, {
  error: 'a field name, or names joined by dots for a field inside another, such as "customer.mail"',
});

/** For each field, spellings that are tried before the known ones. */
export const orderFields = z
  .preprocess(
    flattened,
    z.record(
      z.string(),
      z.union([z.array(spelling), spelling.transform((one) => [one])], {
        error: () => 'a field name or a list of field names, such as ["orderNumber", "customer.mail"]',
      }),
      { error: 'a table such as { order_id = ["orderNumber"] }' },
    ),
  )
  .superRefine((table, context) => {
    const unknown = Object.keys(table).filter((key) => !FIELD_BY_KEY.has(key));
    for (const key of unknown) context.addIssue({ code: 'unrecognized_keys', keys: [key], input: table });
  })
  .transform((table) =>
    Object.fromEntries(Object.entries(table).map(([key, names]) => [FIELD_BY_KEY.get(key) ?? key, names])),
  );

const NAMED_STATUSES: ReadonlySet<string> = new Set(ORDER_STATUSES.map((status) => status.toLowerCase()));

/** Words of the platform for the statuses of its document. */
export const statusWords = z
  .record(
    z.string(),
    z.enum(ORDER_STATUSES, {
      error: () => `a status of the platform's document: ${ORDER_STATUSES.join(', ')}`,
    }),
    { error: 'a table such as { PENDIENTE = "pending" }' },
  )
  .superRefine((table, context) => {
    const named = Object.keys(table).filter((word) => NAMED_STATUSES.has(word.trim().toLowerCase()));
    for (const word of named) {
      const message = 'a word that the document does not name itself';
      context.addIssue({ code: 'custom', path: [word], message });
    }
  });

/**
 * Joins keys of nested tables, because TOML reads `item.quantity = …` as a table: {item: {quantity: x}} →
 * {'item.quantity': x}.
 */
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

/** Whether the value is a TOML table. */
export function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}
