import { asTillsyncError, type TillsyncError } from '../domain/errors.ts';
import type { TextSink } from './cli.ts';
import { printableLines } from './texts/printable.ts';

/** An error as a `--json` document carries it. */
export interface FailureDocument {
  error: {
    code: string;
    message: string;
    hint?: string;
    httpStatus?: number;
    retryAfterMs?: number;
  };
}

export function failureDocument(error: TillsyncError): FailureDocument {
  const { code, message, hint, httpStatus, retryAfterMs } = error;
  return {
    error: {
      code,
      message,
      ...(hint === undefined ? {} : { hint }),
      ...(httpStatus === undefined ? {} : { httpStatus }),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    },
  };
}

/** Tells a failure to a person: what happened, then what to do; a stack only of what nobody foresaw. */
export function tellFailure(stderr: TextSink, thrown: unknown): TillsyncError {
  const error = asTillsyncError(thrown);
  stderr.write(`tillsync: ${printableLines(error.message)}\n`);
  if (error.hint !== undefined) stderr.write(`${printableLines(error.hint)}\n`);
  if (error.code === 'internal' && thrown instanceof Error && thrown.stack !== undefined) {
    stderr.write(`This is a fault of tillsync itself:\n${printableLines(thrown.stack)}\n`);
  }
  return error;
}
