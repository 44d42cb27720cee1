import { asTyped } from './installation.ts';
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
