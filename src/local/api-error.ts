import type { FastifyReply } from 'fastify';
import { asTillsyncError, type ErrorCode, TillsyncError } from '../domain/errors.ts';
import type { Log } from '../domain/log.ts';

/** HTTP status of each error; whatever is not named is a fault of ours. */
const STATUS: Partial<Record<ErrorCode, number>> = {
  usage: 400,
  'feed-restarted': 400,
  unauthorized: 401,
  forbidden: 403,
  'not-found': 404,
  'rate-limited': 429,
  blocked: 503,
  'auth-required': 503,
  'platform-unreachable': 502,
  'platform-failed': 502,
  'platform-garbled': 502,
  'platform-refused': 502,
  'storage-busy': 503,
  'storage-full': 507,
  'storage-readonly': 507,
  aborted: 503,
};

/** Codes for what the HTTP layer itself refuses, by its status. */
const CODE: Partial<Record<number, ErrorCode>> = { 401: 'unauthorized', 403: 'forbidden', 404: 'not-found' };

const HINT: Partial<Record<number, string>> = {
  413: 'Send it in several parts.',
  415: 'Send application/json. /v1/stock and /v1/products take application/x-ndjson and text/csv, too.',
};

const RETRY_AFTER_S = 1;

/** The one shape of every answer that is no success. */
export interface ErrorBody {
  error: { code: ErrorCode; message: string; hint: string | null };
}

export function statusOf(code: ErrorCode): number {
  return STATUS[code] ?? 500;
}

export function errorBody({ code, message, hint }: TillsyncError): ErrorBody {
  return { error: { code, message, hint: hint ?? null } };
}

/** Answers with the error. What is ours alone (`internal`, a failing disk) is told by code, its details by the log. */
export function sendError(reply: FastifyReply, thrown: unknown, log: Log): FastifyReply {
  const error = withHttpStatus(thrown) ?? asTillsyncError(thrown);
  const status = isHttpRefusal(thrown) ? thrown.statusCode : statusOf(error.code);
  if (status === 429 || status === 503) reply.header('retry-after', String(RETRY_AFTER_S));
  if (error.code === 'internal') {
    log.error({ err: thrown }, 'a local request could not be handled');
    return reply.code(500).send(errorBody(hidden));
  }
  if (status >= 500) log.warn({ err: thrown }, 'a local request could not be answered now');
  return reply.code(status).send(errorBody(error));
}

const hidden = new TillsyncError('internal', 'The request could not be handled.', {
  hint: 'The log of tillsync has the details.',
});

type HttpRefusal = Error & { statusCode: number };

/** A refusal of the HTTP layer, such as a body that is too large or of an unknown type. */
function isHttpRefusal(thrown: unknown): thrown is HttpRefusal {
  if (!(thrown instanceof Error) || !('statusCode' in thrown)) return false;
  const status = Number(thrown.statusCode);
  return status >= 400 && status < 500;
}

function withHttpStatus(thrown: unknown): TillsyncError | undefined {
  if (!isHttpRefusal(thrown)) return undefined;
  const code = CODE[thrown.statusCode] ?? 'usage';
  const hint = HINT[thrown.statusCode];
  return new TillsyncError(code, thrown.message, { cause: thrown, ...(hint !== undefined && { hint }) });
}
