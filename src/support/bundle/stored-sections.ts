import type Database from 'better-sqlite3';
import { openReaders, storedVerdict } from '../../app/readers.ts';
import { RUNNING, type StoragePaths } from '../../app/storage.ts';
import { openState, type State } from '../../app/stores.ts';
import type { Config } from '../../config/config-type.ts';
import { openWhenFree } from '../../core/files.ts';
import type { Clock } from '../../core/time.ts';
import { lookInto } from '../../db/sqlite.ts';
import { findWalReaders } from '../../db/wal.ts';
import { lookIntoInbox } from '../../outbox/inbox-process.ts';
import { ENDPOINTS } from '../../platform/platform.ts';
import { describeTokens } from '../../platform/tokens.ts';
import { plainUrl } from './machine-sections.ts';
import { mustExist, orFault, type Section } from './redact.ts';

const DEPTH_MAX = 12;
const KEYS_MAX = 200;
const ITEMS_SHOWN = 2;

/** What a payload looks like, without one value of it: support sees which field is missing or of another type. */
export function structureOf(payload: string | Uint8Array): unknown {
  const text = typeof payload === 'string' ? payload : Buffer.from(payload).toString('utf8');
  try {
    return shapeOf(JSON.parse(text), 0);
  } catch {
    const kind = /^\s*</.test(text) ? 'markup such as HTML' : 'no JSON';
    return `${kind}, ${text.length} characters`;
  }
}

function shapeOf(value: unknown, depth: number): unknown {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return textShape(value);
  if (typeof value === 'number') return Number.isInteger(value) ? 'whole number' : 'number';
  if (depth > DEPTH_MAX) return 'deeper still';
  if (Array.isArray(value)) {
    const shown = value.slice(0, ITEMS_SHOWN).map((each) => shapeOf(each, depth + 1));
    return value.length > ITEMS_SHOWN ? [...shown, `and ${value.length - ITEMS_SHOWN} more`] : shown;
  }
  const entries = Object.entries(value as object);
  const shown = entries
    .slice(0, KEYS_MAX)
    .map(([key, each], i) => [keyShape(key, i), shapeOf(each, depth + 1)]);
  if (entries.length > KEYS_MAX) shown.push(['…', `${entries.length - KEYS_MAX} more keys`]);
  return Object.fromEntries(shown);
}

function textShape(text: string): string {
  if (text === '') return 'empty text';
  if (/^\d{4}-\d{2}-\d{2}T[\d:.]+(Z|[+-]\d{2}:?\d{2})$/.test(text)) return 'time, ISO 8601';
  if (/^-?\d+(\.\d+)?$/.test(text)) return 'number as text';
  return `text of ${text.length}`;
}

/** Names of fields are short words; anything else is a value that became a key. */
function keyShape(key: string, index: number): string {
  return /^[A-Za-z_$][\w$-]{0,39}$/.test(key) && !/\d{4}/.test(key)
    ? key
    : `key ${index + 1}, of ${key.length}`;
}

const EVENTS_TAIL = 1_000;
const ORDERS_TAIL = 300;
const CHANGES_TAIL = 500;
const QUARANTINE_TAIL = 100;
const PAYLOAD_BYTES_MAX = 256 * 1024;

const WITHOUT_CUSTOMER = `order_id, code, status, seq, store_external_id, created_at, updated_at, delivery_type,
  is_scheduled, scheduled_for, event_source, payload_source, length(payload) AS payload_length`;
/** Numbers of `code` that no order has, between the lowest and the highest of the newest orders. */
const GAPS = `
  WITH newest AS (SELECT code FROM orders WHERE code IS NOT NULL ORDER BY code DESC LIMIT 5000)
  SELECT before + 1 AS "from", code - 1 AS "to" FROM (
    SELECT code, lag(code) OVER (ORDER BY code) AS before FROM newest) WHERE code > before + 1
  ORDER BY code DESC LIMIT 100`;

/** What the mirror holds, as plain queries: it is read also where its schema is another than today's. */
export function mirrorSections(path: string, options: { withCustomerData: boolean }): Section[] {
  const look = <T>(read: (db: Database.Database) => T): T => {
    mustExist(path);
    return lookInto(path, read);
  };
  const all = (query: string) => look((db) => db.prepare<[], Record<string, unknown>>(query).all());
  const section = (name: string, what: string, query: string): Section => ({
    name,
    what,
    mayNamePeople: true,
    make: () => ({ lines: all(query) }),
  });
  return [
    {
      name: 'mirror.json',
      what: 'the mirror: schema, rows of each table, freshness, alarms, gaps in the order codes',
      mayNamePeople: true,
      make: () => ({ document: look(overview) }),
    },
    section(
      'orders.ndjson',
      options.withCustomerData
        ? `the newest ${ORDERS_TAIL} orders WITH customers and all they wrote`
        : `the newest ${ORDERS_TAIL} orders: ids, states and times, nothing of customers`,
      `SELECT ${options.withCustomerData ? '*' : WITHOUT_CUSTOMER} FROM orders ORDER BY seq DESC LIMIT ${ORDERS_TAIL}`,
    ),
    section(
      'order-events.ndjson',
      `the newest ${EVENTS_TAIL} events of the order feed`,
      `SELECT seq, order_id, status, previous_status, source, observed_at FROM order_events
       ORDER BY seq DESC LIMIT ${EVENTS_TAIL}`,
    ),
    section(
      'held-notifications.ndjson',
      'notifications that would have taken an order back: states and times',
      `SELECT held_id, order_id, status, known_status, received_at, resolved_at, resolution
       FROM held_notifications ORDER BY held_id DESC LIMIT ${QUARANTINE_TAIL}`,
    ),
    section(
      'outbox.ndjson',
      `the newest ${CHANGES_TAIL} changes for the platform and what became of them`,
      `SELECT change_id, kind, target, body, fields, state, held_guard, attempts, message, created_at, settled_at,
         basis, source, replaced, superseded_by FROM outbox ORDER BY change_id DESC LIMIT ${CHANGES_TAIL}`,
    ),
    {
      name: 'quarantine.ndjson',
      what: options.withCustomerData
        ? 'what could not be read, WITH its content'
        : 'what could not be read: why, and which fields of which type it has, without a value',
      mayNamePeople: true,
      make: () => ({ lines: look((db) => quarantine(db, options.withCustomerData)) }),
    },
  ];
}

function overview(db: Database.Database): unknown {
  const all = (query: string) => orFault(() => db.prepare<[], Record<string, unknown>>(query).all());
  const tables = db
    .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    .pluck()
    .all();
  const count = (table: string) =>
    orFault(() =>
      db
        .prepare<[], number>(`SELECT count(*) FROM "${table.replaceAll('"', '""')}"`)
        .pluck()
        .get(),
    );
  return {
    quickCheck: orFault(() => db.pragma('quick_check(5)', { simple: true })),
    schemaSteps: all('SELECT number, name FROM schema_migrations ORDER BY number'),
    pageBytes: db.pragma('page_size', { simple: true }),
    pages: db.pragma('page_count', { simple: true }),
    freePages: db.pragma('freelist_count', { simple: true }),
    rows: Object.fromEntries(tables.map((table) => [table, count(table)])),
    sequences: all('SELECT name, seq FROM sqlite_sequence'),
    freshness: all('SELECT subject, state, last_ok_at, last_try_at, message FROM freshness'),
    alarms: all('SELECT key, message, raised_at, changed_at FROM alarms'),
    marks: all('SELECT name, value FROM marks'),
    sweeps: all(
      'SELECT branch, subsidiary_id, started_at, completed_at, as_of_seq, pages, products FROM sweeps',
    ),
    orderStates: all('SELECT status, count(*) AS orders FROM orders GROUP BY status'),
    eventSources: all(
      'SELECT source, count(*) AS events, max(observed_at) AS newest FROM order_events GROUP BY source',
    ),
    outboxStates: all(
      `SELECT kind, state, held_guard, count(*) AS changes, min(created_at) AS oldest FROM outbox
       GROUP BY kind, state, held_guard`,
    ),
    gapsInOrderCodes: all(GAPS),
  };
}

interface QuarantineRow {
  payload: string | Uint8Array;
}

function quarantine(db: Database.Database, withContent: boolean): unknown[] {
  const rows = db
    .prepare<[], QuarantineRow>(
      `SELECT quarantine_id, source, received_at, reason, seen, bytes, substr(payload, 1, ${PAYLOAD_BYTES_MAX}) AS payload
       FROM quarantine ORDER BY quarantine_id DESC LIMIT ${QUARANTINE_TAIL}`,
    )
    .iterate();
  return Array.from(rows, ({ payload, ...rest }) => ({
    ...rest,
    ...(withContent
      ? { payload: Buffer.from(payload).toString('utf8') }
      : { structure: structureOf(payload) }),
  }));
}

export interface StateSectionsOptions {
  paths: StoragePaths;
  config: Config | undefined;
  clock: Clock;
  signal: AbortSignal;
}

/** What the processes of the company share, and what follows for the shop. */
export function stateSections({ paths, config, clock, signal }: StateSectionsOptions): Section[] {
  const sections: Section[] = [
    {
      name: 'state.json',
      what: 'whether tillsync runs, times of the tokens, waits and blocks of the platform; no token',
      mayNamePeople: true,
      make: async () => ({ document: await stateOf(paths.state, config, clock) }),
    },
    {
      name: 'inbox.json',
      what: 'how much the POS handed over by SQL that was not taken yet',
      mayNamePeople: false,
      make: async () => ({ document: await inboxOf(paths.inbox, clock, signal) }),
    },
    {
      name: 'mirror-readers.json',
      what: 'programs that read the mirror at this moment',
      mayNamePeople: false,
      make: () => ({ document: findWalReaders(paths.mirror) }),
    },
  ];
  if (config !== undefined) {
    sections.unshift({
      name: 'verdict.json',
      what: 'what is wrong and what to do, as the status page says it',
      mayNamePeople: true,
      make: async () => ({ document: await verdictNow(config, clock) }),
    });
  }
  return sections;
}

async function verdictNow(config: Config, clock: Clock): Promise<unknown> {
  const readers = await openReaders({ config, clock });
  try {
    const orNull = <T>(read: () => T): T | null => {
      try {
        return read();
      } catch {
        return null;
      }
    };
    const tokens = orNull(() => readers.tokens());
    const running = orNull(() => readers.isRunning());
    return storedVerdict({ readers, config, clock, tokens, running });
  } finally {
    await readers.close();
  }
}

const CALLBACKS = 200;

async function stateOf(path: string, config: Config | undefined, clock: Clock): Promise<unknown> {
  mustExist(path);
  const state = await openWhenFree(clock, () => openState({ path, clock }));
  try {
    return {
      running: orFault(() => state.leases.isHeld(RUNNING)),
      auth: orFault(() => authOf(state, clock)),
      webhook: orFault(() => webhookOf(state)),
      callbacks: orFault(() => state.callbacks.list(0, CALLBACKS)),
      ...(config && {
        waits: orFault(() => state.ledger.waits(config.limits)),
        blocks: ENDPOINTS.map((endpoint) => ({
          endpoint,
          history: orFault(() => state.ledger.blockHistory(endpoint, config.limits)),
        })),
      }),
    };
  } finally {
    state.close();
  }
}

function authOf({ tokens }: State, clock: Clock): unknown {
  const pair = tokens.read();
  return describeTokens(
    pair,
    tokens.readIntent()?.startedAtMs ?? null,
    clock.nowMs() + (pair?.clockSkewMs ?? 0),
  );
}

/** Which secrets there are, and until when; none of them. */
function webhookOf({ webhook }: State): unknown {
  const { current, previous, pending, previousUntilMs, registered } = webhook.read();
  return {
    rotatedHere: current !== null,
    previousStillAccepted: previous !== null,
    previousUntilMs,
    rotationUnfinished: pending.length > 0,
    registeredAddress: registered && plainUrl(registered.callbackUrl),
  };
}

async function inboxOf(path: string, clock: Clock, signal: AbortSignal): Promise<unknown> {
  mustExist(path);
  return lookIntoInbox({ path, clock, signal }, (ask) => ask({ do: 'health' }));
}
