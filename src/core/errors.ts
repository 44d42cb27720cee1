import type { Clock } from './time.ts';

/** How tillsync is called on this machine for one configuration. */
export interface Installation {
  /** What starts a command: `tillsync`, or `npm run -s tillsync --` in a checkout. */
  program: string;
  /** Whether what is stored belongs to another user than the person who types. */
  needsSudo: boolean;
  /** Where what is stored lies. */
  storage: string;
  /** null: the one that is read without `--config`. */
  configFile: string | null;
  /** The unit of the package that serves this file, such as `tillsync@north.service`; null: none does. */
  unit: string | null;
}

/** What a text may name in braces, such as `{tillsync} auth set`, and what a person types for it here. */
export interface TypedWords {
  tillsync: string;
  /** Starts the daemon. */
  start: string;
  restart: string;
  stop: string;
  /** Has it start with the machine. */
  enable: string;
  /** Shows why it ended. */
  journal: string;
  /** The storage directory. */
  storage: string;
}

const PACKAGED: Installation = {
  program: 'tillsync',
  needsSudo: false,
  storage: '/var/lib/tillsync',
  configFile: null,
  unit: 'tillsync.service',
};
const NAMED = /\{(tillsync|start|restart|stop|enable|journal|storage)\}/g;

let look: () => Installation = () => PACKAGED;
let words: TypedWords | undefined;
let command = '';

/**
 * Tells once, where the process is put together, how its texts name commands; `find` is called for the first text.
 * `typed`: the words of the command that runs, such as `order`, `list`, `--day`, `today`.
 */
export function setInstallation(
  find: () => Installation = () => PACKAGED,
  typed: readonly string[] = [],
): void {
  look = find;
  command = typed.map((word) => ` ${quoted(word)}`).join('');
  words = undefined;
}

/** The commands of this installation. */
export function typedWords(): TypedWords {
  words ??= wordsOf(look());
  return words;
}

/** The command that runs, as one types it who has not the right to run it. */
export function typedAgain(): string {
  return `${wordsOf({ ...look(), needsSudo: true }).tillsync}${command}`;
}

/** A text with its commands in place, literally as they are typed here. */
export function asTyped(text: string): string {
  if (!text.includes('{')) return text;
  return text.replaceAll(NAMED, (_all, name: keyof TypedWords) => typedWords()[name]);
}

export function wordsOf({ program, needsSudo, storage, configFile, unit }: Installation): TypedWords {
  const sudo = needsSudo ? 'sudo ' : '';
  const tillsync = `${sudo}${program}${configFile === null ? '' : ` --config ${quoted(configFile)}`}`;
  if (unit === null) {
    const start = `${tillsync} run`;
    return { tillsync, start, restart: start, stop: 'Ctrl-C', enable: start, journal: start, storage };
  }
  const name = unit.replace(/\.service$/, '');
  return {
    tillsync,
    start: `${sudo}systemctl start ${name}`,
    restart: `${sudo}systemctl restart ${name}`,
    stop: `${sudo}systemctl stop ${name}.socket ${name}.service`,
    enable: `${sudo}systemctl enable ${name}`,
    journal: `${sudo}journalctl -u ${name} -n 50`,
    storage,
  };
}

function quoted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** Every way tillsync can fail, as a closed set: callers branch on these and never on a message. */
export type ErrorCode =
  | 'usage' // the command line is wrong
  | 'config-invalid' // the configuration cannot be used
  | 'auth-required' // only a person with new tokens can go on
  | 'unauthorized' // 401 that a refresh did not cure
  | 'rate-limited' // 429
  | 'blocked' // 403: the platform blocked the token for a while
  | 'forbidden' // 403 that stays on one endpoint while others answer
  | 'platform-unreachable' // DNS, TLS, connection, timeout: no answer was read
  | 'platform-failed' // 5xx
  | 'platform-garbled' // an answer that is not the JSON it should be
  | 'platform-refused' // success: false, or another 4xx
  | 'not-found'
  | 'feed-restarted' // a reader of the change feed is ahead of it
  | 'storage-busy'
  | 'storage-full'
  | 'storage-readonly'
  | 'storage-corrupt'
  | 'storage-newer' // written by a newer tillsync
  | 'storage-failed' // any other fault of disk or database
  | 'lease-lost' // another process took over
  | 'link-down' // no word between a hub and its branch
  | 'link-refused' // the hub does not take this branch as it is
  | 'aborted' // stopped on request
  | 'internal';

export interface ErrorDetails {
  /** What to do about it, for the person who reads it. */
  hint?: string;
  cause?: unknown;
  /** Whether the same call may succeed later without anybody acting. */
  retryable?: boolean;
  /** Milliseconds after which a retry is welcome, when the platform or the budget said so. */
  retryAfterMs?: number;
  /** HTTP status that led here, where there was one. */
  httpStatus?: number;
}

const RETRYABLE: ReadonlySet<ErrorCode> = new Set([
  'rate-limited',
  'blocked',
  'platform-unreachable',
  'platform-failed',
  'platform-garbled',
  'storage-busy',
  'storage-full',
]);

/** The one error class. The message says what happened and what was kept; the hint says what to do, both `asTyped`. */
export class TillsyncError extends Error {
  override readonly name = 'TillsyncError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  readonly httpStatus: number | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(asTyped(message), details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.hint = details.hint === undefined ? undefined : asTyped(details.hint);
    this.retryable = details.retryable ?? RETRYABLE.has(code);
    this.retryAfterMs = details.retryAfterMs;
    this.httpStatus = details.httpStatus;
  }
}

/** Whether `error` is ours and carries `code`. */
export function hasCode(error: unknown, ...codes: ErrorCode[]): error is TillsyncError {
  return error instanceof TillsyncError && codes.includes(error.code);
}

/** Any thrown thing as a TillsyncError, unknown ones as `internal` with their cause kept. */
export function asTillsyncError(error: unknown): TillsyncError {
  if (error instanceof TillsyncError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new TillsyncError('internal', message, { cause: error });
}

/**
 * Runs a short database action, trying again while another process holds the lock, without freezing the event
 * loop meanwhile. Throws `storage-busy` after `deadlineMs`, `aborted` when the signal ends it.
 */
export async function whenFree<T>(
  clock: Clock,
  action: () => T,
  deadlineMs = 10_000,
  signal?: AbortSignal,
): Promise<T> {
  const endMs = clock.monotonicMs() + deadlineMs;
  for (let attempt = 0; ; attempt++) {
    try {
      return action();
    } catch (error) {
      if (!hasCode(error, 'storage-busy') || clock.monotonicMs() >= endMs) throw error;
    }
    if (signal?.aborted) throw new TillsyncError('aborted', 'Stopped while waiting for the database.');
    await clock.sleep(Math.min(2 + attempt * 3, 50), signal);
  }
}

/** Why it failed, for whoever compares: what the system or the database calls it, such as ECONNREFUSED, or else the code. */
export function failureCode({ code, cause }: TillsyncError): string {
  const first = cause instanceof AggregateError ? cause.errors[0] : cause;
  const isNamed = typeof first === 'object' && first !== null && 'code' in first;
  const name = isNamed && code === 'platform-unreachable' ? String(first.code) : '';
  return /^[A-Z][A-Z0-9_]{2,60}$/.test(name) ? name : code;
}

/** A number with its noun: `1 order`, `2 orders`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

const NAMED_MAX = 5;

/** The first five by name, and how many more there are, for an alarm: `1001`, `1002`, … `+7`. `count`: of all of them. */
export function firstNames<Item>(
  items: readonly Item[],
  name: (item: Item) => string,
  count = items.length,
): string[] {
  const names = items.slice(0, NAMED_MAX).map(name);
  return count > names.length ? [...names, `+${count - names.length}`] : names;
}
