import type Database from 'better-sqlite3';
import { lookInto } from '../../store/backup/copy-database.ts';
import { mustExist, orFault, type Section } from './section.ts';
import { structureOf } from './structure.ts';

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
