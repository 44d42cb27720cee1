import type { z } from 'zod';
import { branches, orderFields } from './config-lists.ts';
import { type Config, LOG_LEVELS } from './config-type.ts';
import * as value from './config-values.ts';

/** One key of the file: its name there, what it may hold, and what holds when it is missing. */
export interface KeySpec<T> {
  readonly key: string;
  readonly schema: z.ZodType<T>;
  /** As it would be written in the file; undefined: the key is required. */
  readonly fallback?: unknown;
}

type Listening = { listen: value.Listen };
type ListenSplit<T> = Omit<T, 'host' | 'port'> & Listening;
/** The sections as the file has them: `listen` is one key there and `host` and `port` in the Config. */
export type FileSections = Omit<Config, 'branches' | 'webhook' | 'local'> & {
  webhook: ListenSplit<Config['webhook']>;
  local: { listen: [value.Listen, ...value.Listen[]]; socket: string };
};
type SectionSpecs = {
  readonly [S in keyof FileSections]: {
    readonly [K in keyof FileSections[S]]: KeySpec<FileSections[S][K]>;
  };
};

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const YEAR = 365 * DAY;

function spec<T>(key: string, schema: z.ZodType<T>, fallback?: unknown): KeySpec<T> {
  return { key, schema, fallback };
}

/** Every key of every section but `[[branches]]`, with the defaults that the product promises. */
export const SECTIONS: SectionSpecs = {
  platform: {
    baseUrl: spec('base_url', value.httpUrl({ baseOnly: true })),
    timeoutMs: spec('timeout', value.duration(SECOND, 10 * MINUTE), '30s'),
    webhookReadMethod: spec('webhook_read_method', value.oneOf('GET', 'POST'), 'GET'),
    webhookReadPath: spec('webhook_read_path', value.urlPath, '/webhook'),
    webhookActiveField: spec('webhook_active_field', value.fieldName, 'active'),
  },
  storage: {
    directory: spec('directory', value.absolutePath, '/var/lib/tillsync'),
    group: spec('group', value.optionalGroup, ''),
  },
  webhook: {
    enabled: spec('enabled', value.boolean, true),
    listen: spec('listen', value.listen, '127.0.0.1:8787'),
    path: spec('path', value.urlPath, '/webhook'),
    callbackUrl: spec('callback_url', value.httpUrl({ baseOnly: false }), ''),
    tlsCertFile: spec('tls_cert_file', value.optionalPath, ''),
    tlsKeyFile: spec('tls_key_file', value.optionalPath, ''),
    bodyLimitBytes: spec('body_limit', value.byteSize(1024, 64 * 1024 ** 2), '1MiB'),
  },
  orders: {
    poll: spec('poll', value.cron, '*/2 * * * *'),
    timezone: {
      ...spec('timezone', value.timeZone),
      // Looked up only when it is needed, for it costs more than all other keys together.
      get fallback() {
        return Intl.DateTimeFormat().resolvedOptions().timeZone;
      },
    },
    lookbackDays: spec('lookback_days', value.wholeNumber(0, 365), 1),
    wideDays: spec('wide_days', value.wholeNumber(0, 366), 30),
    wideEveryMs: spec('wide_every', value.duration(MINUTE, 30 * DAY), '1h'),
    pageParameter: spec('page_parameter', value.optionalFieldName, ''),
    listPath: spec('list_path', value.optionalDottedPath, ''),
    fields: spec('fields', orderFields, {}),
  },
  catalog: {
    sweep: spec('sweep', value.cron, '30 4 * * *'),
    pageSize: spec('page_size', value.wholeNumber(1, 1000), 100),
  },
  outbox: {
    lingerMs: spec('linger', value.duration(0, MINUTE), '250ms'),
  },
  stock: {
    holdBackUnbooked: spec('hold_back_unbooked', value.boolean, false),
    skipUnchanged: spec('skip_unchanged', value.boolean, true),
    trustForMs: spec('trust_for', value.duration(0, 30 * DAY), '10m'),
    platformDeducts: spec('platform_deducts', value.boolean, true),
  },
  guard: {
    zeroItemsMax: spec('zero_items_max', value.wholeNumber(0, 1_000_000), 100),
    zeroItemsWindowMs: spec('zero_items_window', value.duration(SECOND, DAY), '10m'),
    priceFactorMax: spec('price_factor_max', value.decimal(0, 1_000_000), 10),
    missingShareMax: spec('missing_share_max', value.decimal(0, 1), 0.5),
  },
  retention: {
    eventsMs: spec('events', value.keepFor(DAY, 10 * YEAR), '90d'),
    payloadsMs: spec('payloads', value.keepFor(DAY, 10 * YEAR), '30d'),
    ordersMs: spec('orders', value.keepFor(DAY, 10 * YEAR), '400d'),
    outboxMs: spec('outbox', value.keepFor(DAY, 10 * YEAR), '30d'),
    quarantineMs: spec('quarantine', value.keepFor(DAY, 10 * YEAR), '90d'),
    maxBytes: spec('max_bytes', value.byteSize(16 * 1024 ** 2, 1024 ** 4), '1GiB'),
  },
  local: {
    listen: spec('listen', value.listenList, '127.0.0.1:8788'),
    socket: spec('socket', value.optionalSocketPath, ''),
  },
  alarms: {
    command: spec('command', value.commandLine, []),
    url: spec('url', value.httpUrl({ baseOnly: false }), ''),
    name: spec('name', value.shortLine, ''),
    level: spec('level', value.oneOf('amber', 'red'), 'amber'),
    settleMs: spec('settle', value.duration(0, HOUR), '1m'),
    repeatMs: spec('repeat', value.duration(0, 30 * DAY), '0s'),
    dailyMax: spec('daily_max', value.wholeNumber(1, 1000), 20),
    timeoutMs: spec('timeout', value.duration(SECOND, 5 * MINUTE), '30s'),
  },
  limits: {
    endpointIntervalMs: spec('endpoint_interval', value.duration(1, HOUR), '1s'),
    ordersIntervalMs: spec('orders_interval', value.duration(1, DAY), '2m'),
    windowMs: spec('window', value.duration(1, DAY), '5m'),
    requestsPerWindow: spec('requests_per_window', value.wholeNumber(1, 1_000_000), 1000),
    ordersPerWindow: spec('orders_per_window', value.wholeNumber(1, 1_000_000), 100),
  },
  log: {
    level: spec('level', value.oneOf(...LOG_LEVELS), 'info'),
    pretty: spec('pretty', value.oneOf('auto', true, false), 'auto'),
  },
};

export const BRANCHES: KeySpec<Config['branches']> = spec<Config['branches']>('branches', branches, []);

/** The environment variable that overrides a key; section and key joined as they stand in the file. */
export function envName(section: string, key?: string): string {
  return `TILLSYNC_${section}${key === undefined ? '' : `_${key}`}`.toUpperCase();
}
