import type { Clock } from './time.ts';

/** Facts by which texts name tillsync's commands on this machine, for one configuration. */
export interface Installation {
  /** The command's beginning: `tillsync`, or `npm run -s tillsync --` in a checkout. */
  program: string;
  /** Whether the stored files belong to another user than the caller. */
  needsSudo: boolean;
  /** Storage directory. */
  storage: string;
  /** null for the file that is read without `--config`. */
  configFile: string | null;
  /** The package's systemd unit for this file, such as `tillsync@north.service`; null if none. */
  unit: string | null;
}

/** Placeholders of a text, such as `{tillsync} auth set`, and what a person types for them here. */
export interface TypedWords {
  tillsync: string;
  /** Starts the daemon. */
  start: string;
  restart: string;
  stop: string;
  /** The command that starts the service with the machine. */
  enable: string;
  /** Command that shows the service's log, and so why it ended. */
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
 * Sets how texts name commands. Called once, at the program's start; `find` runs for the first text. `typed` are the
 * words of the running command, such as `order`, `list`, `--day`, `today`.
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

/** Returns the running command with sudo, for a user without the right to run it. */
export function sameCommandWithSudo(): string {
  return `${wordsOf({ ...look(), needsSudo: true }).tillsync}${command}`;
}

/** Replaces placeholders in a text by the commands as they are typed here. */
export function formatCommands(text: string): string {
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

/** Every error code of tillsync, as a closed set. Callers compare codes, never messages. */
export type ErrorCode =
  | 'usage' // the command line is wrong
  | 'config-invalid' // the configuration cannot be used
  | 'auth-required' // only a person with new tokens can help
  | 'unauthorized' // 401 that stays after a refresh
  | 'rate-limited' // 429
  | 'blocked' // 403: the platform blocked the token for a while
  | 'forbidden' // 403 of one endpoint only, while others answer
  | 'platform-unreachable' // DNS, TLS, connection or timeout: no answer was read
  | 'platform-failed' // 5xx
  | 'platform-garbled' // an answer that is not the expected JSON
  | 'platform-refused' // success: false, or another 4xx
  | 'not-found'
  | 'conflict' // what was asked for does not fit the present state
  | 'feed-restarted' // a reader of the feed is ahead of the feed's end
  | 'storage-busy'
  | 'storage-full'
  | 'storage-readonly'
  | 'storage-corrupt'
  | 'storage-newer' // written by a newer tillsync
  | 'storage-failed' // any other disk or database error
  | 'lease-lost' // another process took over
  | 'link-down' // no contact between a hub and its branch
  | 'link-refused' // the hub refuses this branch in its present state
  | 'aborted' // stopped on request
  | 'internal';

interface ErrorDetails {
  /** Advice for the reader of the message. */
  hint?: string;
  cause?: unknown;
  /** Whether the same call may succeed later without any person's action. */
  retryable?: boolean;
  /** Milliseconds to wait before a retry, if the platform or the budget said so. */
  retryAfterMs?: number;
  /** HTTP status that caused the error, if any. */
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

/**
 * The only error class. The message says what happened and what was kept, and the hint what to do. Both go
 * through `formatCommands`.
 */
export class TillsyncError extends Error {
  override readonly name = 'TillsyncError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  readonly httpStatus: number | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(formatCommands(message), details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.hint = details.hint === undefined ? undefined : formatCommands(details.hint);
    this.retryable = details.retryable ?? RETRYABLE.has(code);
    this.retryAfterMs = details.retryAfterMs;
    this.httpStatus = details.httpStatus;
  }
}

/** Whether `error` is a TillsyncError with one of `codes`. */
export function hasCode(error: unknown, ...codes: ErrorCode[]): error is TillsyncError {
  return error instanceof TillsyncError && codes.includes(error.code);
}

/** The remedy for `storage-busy` in the daemon; nothing tries a command again. */
export const TRIED_AGAIN =
  'It is tried again by itself; if it stays, look for a program that holds the file open.';

/** Returns any thrown value as a TillsyncError; an unknown one becomes `internal` with its cause. */
export function asTillsyncError(error: unknown): TillsyncError {
  if (error instanceof TillsyncError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new TillsyncError('internal', message, { cause: error });
}

/**
 * Runs a short database action, and retries while another process holds the lock, without blocking the event loop.
 * Throws `storage-busy` after `deadlineMs`, `aborted` when the signal ends it.
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

/** Returns a comparable reason: the system's or database's code, such as ECONNREFUSED, else the error's code. */
export function failureCode({ code, cause }: TillsyncError): string {
  if (code !== 'platform-unreachable' && code !== 'link-down') return code;
  // The nats client wraps the system's error once more.
  for (
    let each = cause;
    typeof each === 'object' && each !== null;
    each = 'cause' in each ? each.cause : null
  ) {
    const first = each instanceof AggregateError ? each.errors[0] : each;
    const name = typeof first === 'object' && first !== null && 'code' in first ? String(first.code) : '';
    if (/^[A-Z][A-Z0-9_]{2,60}$/.test(name)) return name;
  }
  return code;
}

/** Returns a number with its noun: `1 order`, `2 orders`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

const NAMED_MAX = 5;

/**
 * Returns the first five names and the number of the others, for an alarm: `1001`, `1002`, … `+7`. `count` is the
 * number of all.
 */
export function firstNames<Item>(
  items: readonly Item[],
  name: (item: Item) => string,
  count = items.length,
): string[] {
  const names = items.slice(0, NAMED_MAX).map(name);
  return count > names.length ? [...names, `+${count - names.length}`] : names;
}

/** Makes foreign text fit for people and programs by removing control characters and cutting it short. */
export function cleaned(value: string, lengthMax: number): string {
  const text = Array.from(value.slice(0, lengthMax), (char) => (isControl(char) ? ' ' : char)).join('');
  return value.length > lengthMax ? `${text}…` : text;
}

function isControl(char: string): boolean {
  return (char < ' ' && char !== '\n' && char !== '\t') || char === '\u007f';
}

/** Longer is no reason that a person reads. */
const TOLD_MAX = 2_000;

/**
 * Prepares a reason for messages and storage: puts its commands as a person types them, and cleans and cuts foreign
 * text.
 */
export function toldText(text: string): string {
  return cleaned(formatCommands(text), TOLD_MAX);
}
