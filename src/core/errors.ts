/** How commands are typed on this machine for one configuration file. */
export interface Installation {
  /** Beginning of every command: `tillsync`, or `npm run -s tillsync --` in a checkout. */
  program: string;
  /** Whether commands need sudo. They do if the stored files belong to another user or to a system user. */
  needsSudo: boolean;
  /** Storage directory. */
  storage: string;
  /** Path of the configuration file; null for the file that is read without `--config`. */
  configFile: string | null;
  /**
   * systemd unit of the package for this configuration file, such as `tillsync@north.service`; null if there is none.
   */
  unit: string | null;
  /** Word of the command that runs tillsync where no unit does; `run` by default. */
  runs?: string;
}

/** Texts that replace the placeholders in a message, such as the one in `{tillsync} auth set`. */
export interface TypedWords {
  /** How a command begins, such as `sudo tillsync`. */
  tillsync: string;
  /** Command that starts the daemon. */
  start: string;
  restart: string;
  stop: string;
  /** Command that makes the service start with the machine. */
  enable: string;
  /** Command that shows the log of the service. */
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
 * Sets how messages write commands; must be called once, when the program starts. `find` is called for the first
 * message with a command. `typed` are the words of the running command, such as `order`, `list`, `--day`, `today`.
 */
export function setInstallation(
  find: () => Installation = () => PACKAGED,
  typed: readonly string[] = [],
): void {
  look = find;
  command = typed.map((word) => ` ${quoted(word)}`).join('');
  words = undefined;
}

/** Returns the commands as they are typed on this machine. */
export function typedWords(): TypedWords {
  words ??= wordsOf(look());
  return words;
}

/** Returns the running command with `sudo`, for a user who is not permitted to run it. */
export function sameCommandWithSudo(): string {
  return `${wordsOf({ ...look(), needsSudo: true }).tillsync}${command}`;
}

/** Replaces the placeholders in a text by commands: `{tillsync} auth set` → `sudo tillsync auth set`. */
export function formatCommands(text: string): string {
  return text.replaceAll(NAMED, (_all, name: keyof TypedWords) => typedWords()[name]);
}

export function wordsOf(installation: Installation): TypedWords {
  const { program, needsSudo, storage, configFile, unit, runs = 'run' } = installation;
  const sudo = needsSudo ? 'sudo ' : '';
  const tillsync = `${sudo}${program}${configFile === null ? '' : ` --config ${quoted(configFile)}`}`;
  if (unit === null) {
    const start = `${tillsync} ${runs}`;
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

/** Every error code of tillsync. Callers compare codes, never messages. */
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
  | 'conflict' // the request contradicts the present state
  | 'feed-restarted' // a reader of the feed is ahead of the feed's end
  | 'storage-busy'
  | 'storage-full'
  | 'storage-readonly'
  | 'storage-corrupt'
  | 'storage-newer' // written by a newer tillsync
  | 'storage-failed' // any other disk or database error
  | 'lease-lost' // another process acquired the lease
  | 'link-down' // no contact between a hub and its branch
  | 'link-refused' // the hub refuses this branch in its present state
  | 'aborted' // stopped on request
  | 'internal';

interface ErrorDetails {
  /** Advice for the reader of the message. */
  hint?: string;
  cause?: unknown;
  /** Whether the same call may succeed later, without action by a person. */
  retryable?: boolean;
  /** Milliseconds to wait before a retry, if the platform or the rate budget requires it. */
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
 * Error of tillsync. `message` says what happened and what is still stored; `hint` says what to do. Both may have the
 * placeholders that `formatCommands` replaces.
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

/** Hint of `storage-busy` in the daemon. Commands do not retry, so they have another hint. */
export const TRIED_AGAIN =
  'It is tried again by itself; if it stays, look for a program that holds the file open.';

/**
 * Returns any thrown value as a TillsyncError. An unexpected value gets the code `internal`, and becomes the `cause`.
 */
export function asTillsyncError(error: unknown): TillsyncError {
  if (error instanceof TillsyncError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new TillsyncError('internal', message, { cause: error });
}

/**
 * Returns a code by which failures can be compared. If the platform or the hub was not reached, this is the system's
 * code of the cause, such as ECONNREFUSED, if there is one; otherwise the code of the error.
 */
export function failureCode({ code, cause }: TillsyncError): string {
  if (code !== 'platform-unreachable' && code !== 'link-down') return code;
  // The nats client wraps the system's error, so all causes are searched.
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
 * Returns the first five names and the number of the others: `1001`, `1002`, … `+7`. `count` is the number of all
 * items, if `items` has only some of them.
 */
export function firstNames<Item>(
  items: readonly Item[],
  name: (item: Item) => string,
  count = items.length,
): string[] {
  const names = items.slice(0, NAMED_MAX).map(name);
  return count > names.length ? [...names, `+${count - names.length}`] : names;
}

/**
 * Returns text from outside tillsync, cut to a length, with blanks for the characters of `UNSEEN` other than tab and
 * line feed.
 */
export function cleaned(value: string, lengthMax: number): string {
  const text = value.slice(0, lengthMax).replace(UNSEEN, (char) => (/[\n\t]/.test(char) ? char : ' '));
  return value.length > lengthMax ? `${text}…` : text;
}

/**
 * Characters that control a terminal or hide text on it: controls (C0, C1), line separators, direction marks,
 * characters without width, and tag characters.
 */
export const UNSEEN =
  /[\p{Cc}\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Longest reason in characters. Nobody reads a longer one. */
const TOLD_MAX = 2_000;

/**
 * Returns a reason in the form in which it is shown and stored: with commands as they are typed, as `cleaned` returns
 * it, and at most `TOLD_MAX` characters long.
 */
export function toldText(text: string): string {
  return cleaned(formatCommands(text), TOLD_MAX);
}
