import { execFile } from 'node:child_process';
import { closeSync, fstatSync, lstatSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { arch, freemem, loadavg, release, totalmem, uptime, version } from 'node:os';
import { basename, join, relative } from 'node:path';
import type Database from 'better-sqlite3';
import { asRoot, programVersion } from '../../app/installation.ts';
import { openReadOnlyServices, tokenStatus } from '../../app/read-only-services.ts';
import { openState, type State } from '../../app/state.ts';
import { RUNNING, type StoragePaths, storageSpace } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import type { ConfigFault } from '../../config/source.ts';
import { TillsyncError } from '../../core/errors.ts';
import { openWhenFree } from '../../core/files.ts';
import { type Clock, isoUtc } from '../../core/time.ts';
import { lookInto } from '../../db/sqlite.ts';
import { findWalReaders } from '../../db/wal.ts';
import { lookIntoInbox } from '../../outbox/intake/inbox-process.ts';
import { ENDPOINTS } from '../../platform/platform.ts';
import { sqliteVersion } from '../doctor/machine.ts';
import { readRunningMark, verdictNow } from '../doctor/stored.ts';
import { faultOf, HIDDEN } from './redact.ts';

/** One file of a bundle. */
export interface Section {
  /**
   * File name. Its ending is the type that `make` returns: `.txt` a text, `.json` a document, `.ndjson` documents,
   * newest first.
   */
  name: string;
  /** Description for the person who checks the bundle before it is mailed. */
  what: string;
  /** Returns the content. If it throws, the file contains the error. */
  make(): unknown;
  /** Set if the content cannot include a customer's texts or name. */
  isWithoutPeople?: true;
  /** Set if others wrote the content, so that it may include an unknown secret. */
  isForeign?: true;
}

interface Subject {
  configFile: string;
  /** The configuration; undefined if it is invalid. */
  config: Config | undefined;
  faults: readonly ConfigFault[];
  /** Names of the secrets that were handed in. */
  handedIn: readonly string[];
  directory: string;
  paths: StoragePaths;
  withCustomerData: boolean;
  unit: string;
  logFiles: readonly string[];
  clock: Clock;
  signal: AbortSignal;
}

/** Returns the value or, if `read` throws, the error, so that the other parts are still collected. */
function orFault<T>(read: () => T): T | { couldNotBeRead: string } {
  try {
    return read();
  } catch (error) {
    return faultOf(error);
  }
}

/** Throws a clear error if a file is missing or this user may not see it. */
function mustExist(path: string): void {
  try {
    lstatSync(path);
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    throw isMissing
      ? new TillsyncError('not-found', `There is no ${path}.`)
      : new TillsyncError('storage-readonly', `This user may not look at ${path}.`, {
          hint: 'Make the bundle as root, or as the user that tillsync runs as.',
        });
  }
}

/** Returns the sections with versions, the files of the storage directory, and the effective configuration. */
export function machineSections({ directory, configFile, config, faults, handedIn }: Subject): Section[] {
  return [
    {
      name: 'versions.json',
      what: 'versions of tillsync, Node, SQLite, kernel and distribution; memory and load',
      isWithoutPeople: true,
      make: () => ({
        tillsync: programVersion(),
        node: process.version,
        sqlite: orFault(sqliteVersion),
        kernel: `${release()} ${version()} ${arch()}`,
        distribution: distribution(),
        user: { uid: process.getuid?.() ?? null, gid: process.getgid?.() ?? null },
        timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        uptimeSeconds: Math.round(uptime()),
        load: loadavg(),
        memory: { totalBytes: totalmem(), freeBytes: freemem() },
      }),
    },
    {
      name: 'files.json',
      what: 'size, mode, owner and time of each file in the storage directory, and the room on the disk',
      make: () => ({ directory, disk: storageSpace(directory), files: filesBelow(directory) }),
    },
    {
      name: 'configuration.json',
      what: 'the configuration in force, its faults, and which secrets were handed in; addresses without what may be secret',
      isWithoutPeople: true,
      make: () => ({
        file: configFile,
        faults,
        handedIn: handedIn.map((name) => `${name}: yes`),
        inForce: config && plain(config),
      }),
    },
  ];
}

function distribution(): string | null {
  try {
    return /^PRETTY_NAME="?(.*?)"?$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? null;
  } catch {
    return null;
  }
}

const FILES_MAX = 1_000;

function filesBelow(directory: string): unknown {
  const found: unknown[] = [];
  const look = (path: string, isDirectory: boolean) => {
    if (found.length >= FILES_MAX) return;
    const name = relative(directory, path) || '.';
    const description = orFault(() => {
      const { size, mode, uid, gid, mtimeMs } = lstatSync(path);
      return { bytes: size, mode: (mode & 0o7777).toString(8), uid, gid, changedAt: isoUtc(mtimeMs) };
    });
    found.push({ name, ...description });
    if (!isDirectory) return;
    const entries = orFault(() => readdirSync(path, { withFileTypes: true }));
    if (!Array.isArray(entries)) found.push({ name, ...entries });
    else for (const entry of entries) look(join(path, entry.name), entry.isDirectory());
  };
  look(directory, true);
  return found;
}

function plain(config: Config): unknown {
  const { platform, webhook, hooks, alarms } = config;
  return {
    ...config,
    hooks: hooks.map((hook) => ({ ...hook, url: plainUrl(hook.url) })),
    platform: { ...platform, baseUrl: plainUrl(platform.baseUrl) },
    webhook: { ...webhook, path: plainPath(webhook.path), callbackUrl: plainUrl(webhook.callbackUrl) },
    alarms: { ...alarms, url: hostOf(alarms.url), heartbeatUrl: hostOf(alarms.heartbeatUrl) },
  };
}

/** Returns only the host of an address whose path is a secret. */
function hostOf(text: string): string {
  if (!URL.canParse(text)) return text;
  const { protocol, host } = new URL(text);
  return `${protocol}//${host}/${HIDDEN}`;
}

/** Removes user, password, query, and parts of the path that look random. */
function plainUrl(text: string): string {
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  const user = url.username === '' && url.password === '' ? '' : `${HIDDEN}@`;
  const query = [...url.searchParams.keys()].map((key) => `${encodeURIComponent(key)}=${HIDDEN}`).join('&');
  return `${url.protocol}//${user}${url.host}${plainPath(url.pathname)}${query && `?${query}`}`;
}

function plainPath(path: string): string {
  return path
    .split('/')
    .map((part) => (/^(?=.*\d)(?=.*[A-Za-z])[\w.~%-]{12,}$/.test(part) ? HIDDEN : part))
    .join('/');
}

/** Returns the sections with the shared state of the company's processes, and the verdict for the shop. */
export function stateSections({ paths, config, clock, signal }: Subject): Section[] {
  const verdict: Section = {
    name: 'verdict.json',
    what: 'what is wrong and what to do, as the status page says it',
    make: () => config && storedVerdict(config, clock),
  };
  return [
    ...(config ? [verdict] : []),
    {
      name: 'state.json',
      what: 'whether tillsync runs, times of the tokens, waits and blocks of the platform; no token',
      make: () => stateOf(paths.state, config, clock),
    },
    {
      name: 'inbox.json',
      what: 'how much the POS handed over by SQL that was not taken yet',
      isWithoutPeople: true,
      make: () => {
        mustExist(paths.inbox);
        return lookIntoInbox({ path: paths.inbox, clock, signal }, (ask) => ask({ do: 'health' }));
      },
    },
    {
      name: 'mirror-readers.json',
      what: 'programs that read the mirror at this moment',
      isWithoutPeople: true,
      make: () => findWalReaders(paths.mirror),
    },
  ];
}

async function storedVerdict(config: Config, clock: Clock): Promise<unknown> {
  const readers = await openReadOnlyServices({ config, clock });
  try {
    const { running } = await readRunningMark(config.storage.directory, clock);
    const { verdict, disk } = verdictNow(readers, { config, clock, running });
    return { verdict, disk };
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
      auth: orFault(() => tokenStatus(state, clock)),
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

/** Returns the state of the webhook's secrets, without their values, and the registered address. */
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

const ORDERS = 300;
const EVENTS = 1_000;
const CHANGES = 500;
const QUARANTINED = 100;
const AUDITED = 1_000;
const PAYLOAD_BYTES_MAX = 256 * 1024;

const WITHOUT_CUSTOMER = `order_id, code, status, seq, store_external_id, created_at, updated_at, delivery_type,
  is_scheduled, scheduled_for, event_source, payload_source, length(payload) AS payload_length`;

type Row = Record<string, unknown>;

/** Returns the sections of the mirror. They use plain queries, so that they also work with another schema. */
export function mirrorSections({ paths, withCustomerData }: Subject): Section[] {
  const look = <T>(read: (db: Database.Database) => T): T => {
    mustExist(paths.mirror);
    return lookInto(paths.mirror, read);
  };
  const rows = (query: string) => () => look((db) => db.prepare<[], Row>(query).all());
  return [
    {
      name: 'mirror.json',
      what: 'the mirror: schema, rows of each table, freshness, alarms, gaps in the order codes',
      make: () => look(overview),
    },
    {
      name: 'orders.ndjson',
      what: withCustomerData
        ? `the newest ${ORDERS} orders WITH customers and all they wrote`
        : `the newest ${ORDERS} orders: ids, states and times, nothing of customers`,
      make: rows(
        `SELECT ${withCustomerData ? '*' : WITHOUT_CUSTOMER} FROM _orders ORDER BY seq DESC LIMIT ${ORDERS}`,
      ),
    },
    {
      name: 'order-events.ndjson',
      what: `the newest ${EVENTS} events of the order feed`,
      make: rows(`SELECT seq, order_id, status, previous_status, source, observed_at FROM order_events
        ORDER BY seq DESC LIMIT ${EVENTS}`),
    },
    {
      name: 'held-notifications.ndjson',
      what: 'notifications that would have taken an order back: states and times',
      make: rows(`SELECT held_id, order_id, status, known_status, received_at, resolved_at, resolution
        FROM _held_notifications ORDER BY held_id DESC LIMIT ${QUARANTINED}`),
    },
    {
      name: 'outbox.ndjson',
      what: `the newest ${CHANGES} changes for the platform and what became of them`,
      make: rows(`SELECT change_id, kind, target, body, fields, state, held_guard, attempts, message, created_at,
        settled_at, basis, source, origin, replaced, superseded_by FROM _outbox WHERE state <> 'counted' ORDER BY change_id DESC LIMIT ${CHANGES}`),
    },
    {
      name: 'audit.ndjson',
      what: `the last ${AUDITED} things that operators did: when, who, what, on what`,
      make: rows(`SELECT audit_id, at, who, action, subject, detail FROM _audit
        ORDER BY audit_id DESC LIMIT ${AUDITED}`),
    },
    {
      name: 'quarantine.ndjson',
      what: withCustomerData
        ? 'what could not be read, WITH its content'
        : 'what could not be read: why, and which fields of which type it has, without a value',
      make: () => look((db) => quarantine(db, withCustomerData)),
    },
  ];
}

/** Queries for the lists in `mirror.json`, by the names of the lists. */
const LISTS = {
  schemaSteps: 'SELECT number, name FROM _schema_migrations ORDER BY number',
  sequences: 'SELECT name, seq FROM sqlite_sequence',
  freshness: 'SELECT subject, state, last_ok_at, last_try_at, message FROM freshness',
  alarms: 'SELECT key, message, raised_at, changed_at FROM alarms',
  marks: 'SELECT name, value FROM marks',
  hooks: `SELECT name, event, seq, began_at, news_from, last_ok_at, failures, last_failure_at, last_failure, next_try_at
    FROM _hooks`,
  sweeps: 'SELECT branch, subsidiary_id, started_at, completed_at, as_of_seq, pages, products FROM _sweeps',
  orderStates: 'SELECT status, count(*) AS orders FROM _orders GROUP BY status',
  eventSources:
    'SELECT source, count(*) AS events, max(observed_at) AS newest FROM order_events GROUP BY source',
  outboxStates: `SELECT kind, state, held_guard, count(*) AS changes, min(created_at) AS oldest FROM _outbox
    GROUP BY kind, state, held_guard`,
  // Missing `code` numbers between the lowest and the highest of the newest orders.
  gapsInOrderCodes: `
    WITH newest AS (SELECT code FROM _orders WHERE code IS NOT NULL ORDER BY code DESC LIMIT 5000)
    SELECT before + 1 AS "from", code - 1 AS "to" FROM (
      SELECT code, lag(code) OVER (ORDER BY code) AS before FROM newest) WHERE code > before + 1
    ORDER BY code DESC LIMIT 100`,
};

function overview(db: Database.Database): unknown {
  const pragma = (name: string) => orFault(() => db.pragma(name, { simple: true }));
  const tables = db
    .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    .pluck()
    .all();
  const count = (table: string) =>
    db.prepare(`SELECT count(*) FROM "${table.replaceAll('"', '""')}"`).pluck();
  const lists = Object.entries(LISTS).map(([name, query]) => [
    name,
    orFault(() => db.prepare<[], Row>(query).all()),
  ]);
  return {
    quickCheck: pragma('quick_check(5)'),
    pageBytes: pragma('page_size'),
    pages: pragma('page_count'),
    freePages: pragma('freelist_count'),
    rows: Object.fromEntries(tables.map((table) => [table, orFault(() => count(table).get())])),
    ...Object.fromEntries(lists),
  };
}

function quarantine(db: Database.Database, withContent: boolean): unknown[] {
  const rows = db
    .prepare<[], Row & { payload: string | Uint8Array }>(
      `SELECT quarantine_id, source, received_at, reason, seen, bytes, substr(payload, 1, ${PAYLOAD_BYTES_MAX}) AS payload
       FROM _quarantine ORDER BY quarantine_id DESC LIMIT ${QUARANTINED}`,
    )
    .iterate();
  return Array.from(rows, ({ payload, ...rest }) => {
    const text = Buffer.from(payload as string).toString('utf8');
    return { ...rest, ...(withContent ? { payload: text } : { structure: structureOf(text) }) };
  });
}

const DEPTH_MAX = 12;
const KEYS_MAX = 200;
const ITEMS_SHOWN = 2;

/** Returns a payload's structure without any value, so that support sees missing fields and wrong types. */
function structureOf(text: string): unknown {
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

/** Returns a field name if it is a short word. Anything else may be a value used as a key, so it is only described. */
function keyShape(key: string, index: number): string {
  return /^[A-Za-z_$][\w$-]{0,39}$/.test(key) && !/\d{4}/.test(key)
    ? key
    : `key ${index + 1}, of ${key.length}`;
}

const JOURNAL_LINES = 5_000;
const LOG_BYTES_MAX = 2 * 1024 * 1024;
const PROGRAM_TIMEOUT_MS = 10_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
const SHOWN =
  'LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,ActiveEnterTimestamp,InactiveEnterTimestamp,StatusText,MemoryCurrent,User,Group,FragmentPath,DropInPaths,UnitFileState';

/** Returns the sections with the service and its log. */
export function logSections({ unit, logFiles }: Subject): Section[] {
  const tail = ['--unit', unit, '--lines', String(JOURNAL_LINES), '--no-pager', '--output', 'short-iso'];
  return [
    {
      name: 'service.txt',
      what: `the state of the systemd unit ${unit}`,
      isWithoutPeople: true,
      isForeign: true,
      make: () => outputOf('systemctl', ['show', unit, '--no-pager', '--property', SHOWN]),
    },
    {
      name: 'journal.txt',
      what: `the last ${JOURNAL_LINES} lines that ${unit} wrote`,
      isForeign: true,
      make: () => outputOf('journalctl', tail),
    },
    ...logFiles.map(
      (path, i): Section => ({
        name: `log-${i + 1}.txt`,
        what: `the end of ${basename(path)}`,
        isForeign: true,
        make: () => asRoot(() => endOf(path)),
      }),
    ),
  ];
}

/** Returns a program's output, also when it fails, because the failure is useful in a bundle. */
function outputOf(program: string, words: string[]): Promise<string> {
  return new Promise((resolve) => {
    const options = {
      timeout: PROGRAM_TIMEOUT_MS,
      maxBuffer: OUTPUT_BYTES_MAX,
      env: { PATH: process.env.PATH ?? '', LC_ALL: 'C' },
    };
    // Runs as root if root started the command, because not every user may read the journal.
    asRoot(() =>
      execFile(program, words, options, (error, stdout, stderr) => {
        const failed =
          error === null ? '' : `${program} failed: ${'code' in error ? error.code : 'unknown'}\n`;
        resolve(`${failed}${stderr}${stdout}`);
      }),
    );
  });
}

/** Returns the last part of the file from its first whole line. */
function endOf(path: string): string {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const start = Math.max(0, size - LOG_BYTES_MAX);
    const end = Buffer.alloc(size - start);
    const bytes = readSync(file, end, 0, end.length, start);
    const text = end.toString('utf8', 0, bytes);
    return start === 0 ? text : text.slice(text.indexOf('\n') + 1);
  } finally {
    closeSync(file);
  }
}
