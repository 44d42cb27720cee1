import { once } from 'node:events';
import type { Environment } from '../config/source.ts';
import { asTillsyncError, type ErrorCode, type TillsyncError, UNSEEN } from '../core/errors.ts';
import { type Clock, isoUtc, type Random } from '../core/time.ts';

/** Exit codes of all commands, for scripts. */
export const EXIT = {
  done: 0,
  failed: 1,
  /** Wrong usage or configuration. */
  usage: 2,
  /** Done in part: some items were rejected. */
  partial: 3,
  /** The platform requires new tokens. */
  authRequired: 4,
  /** Ended by Ctrl-C; the same number as in shells. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

const EXIT_OF: Partial<Record<ErrorCode, ExitCode>> = {
  usage: EXIT.usage,
  conflict: EXIT.usage,
  'config-invalid': EXIT.usage,
  aborted: EXIT.interrupted,
  'auth-required': EXIT.authRequired,
};

/** Returns the exit code for an error code. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  return EXIT_OF[code] ?? EXIT.failed;
}

/** Output of a command, such as process.stdout. */
export interface TextSink {
  write(text: string | Uint8Array): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Everything of the process that a command may use. Commands never use the process directly. */
export interface Cli {
  readonly env: Environment;
  readonly stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean | undefined };
  /** Where results are written: a table for people, or exactly one JSON document. */
  readonly stdout: TextSink;
  /** Where progress, advice and errors are written, for people. */
  readonly stderr: TextSink;
  readonly clock: Clock;
  readonly random: Random;
  /** Who runs the command, as the audit log names it: `cli ana`, `cli root (sudo by ana)`. */
  readonly who: string;
  /** Aborts when the person or the system asks the process to end. */
  readonly signal: AbortSignal;
  /** Sets the exit code. If the command ends with an error, the error's exit code is used instead. */
  endWith(code: ExitCode): void;
}

/**
 * Returns untrusted text on one line, with control characters made visible, so that the text cannot control the
 * terminal.
 */
export function printable(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\r\t]/.test(char) ? ' ' : escaped(char)));
}

/** Does the same as `printable`, but keeps line breaks and tabs. */
export function printableLines(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\t]/.test(char) ? char : escaped(char)));
}

/** Wraps a line between words. The further lines get the indent of the first. */
export function broken(line: string, room: number): string[] {
  const indent = /^ */.exec(line)?.[0] ?? '';
  const lines: string[] = [];
  let current = '';
  for (const word of line.trimStart().split(' ')) {
    const longer = current === '' ? indent + word : `${current} ${word}`;
    if (current !== '' && longer.length > room) {
      lines.push(current);
      current = indent + word;
    } else current = longer;
  }
  return [...lines, current];
}

/** Returns equivalent JSON text with control characters escaped, so that it cannot control the terminal. */
function printableJson(json: string): string {
  return json.replace(UNSEEN, (char) => (/[\n\r\t]/.test(char) ? char : units(char)));
}

function escaped(char: string): string {
  const hex = (char.codePointAt(0) ?? 0).toString(16);
  return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, '0')}`;
}

function units(char: string): string {
  return [...Array(char.length).keys()]
    .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`)
    .join('');
}

/** Writes the JSON document of a command. */
export function writeJson(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document, null, 2))}\n`);
}

/** Writes one of several JSON documents, each on one line. */
export function writeJsonLine(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document))}\n`);
}

/** Returns an error as the document that `--json` prints. Fields without a value are left out. */
export function failureDocument({ code, message, hint, httpStatus, retryAfterMs }: TillsyncError) {
  return { error: { code, message, hint, httpStatus, retryAfterMs } };
}

/**
 * Writes an error for a person: what happened, then what to do. The stack is written only for an unexpected error.
 */
export function tellFailure(stderr: TextSink, thrown: unknown): TillsyncError {
  const error = asTillsyncError(thrown);
  stderr.write(`tillsync: ${printableLines(error.message)}\n`);
  if (error.hint !== undefined) stderr.write(`${printableLines(error.hint)}\n`);
  if (error.code === 'internal' && thrown instanceof Error && thrown.stack !== undefined) {
    stderr.write(`This is a fault of tillsync itself:\n${printableLines(thrown.stack)}\n`);
  }
  return error;
}

/** Returns all of standard input as text. Throws the error that `fault` returns if it is longer than `bytesMax`. */
export async function readAll(
  stdin: Cli['stdin'],
  bytesMax: number,
  fault: (found: string) => Error,
): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stdin) {
    const buffer = Buffer.from(part);
    bytes += buffer.length;
    if (bytes > bytesMax) throw fault(`more than ${bytesMax} bytes`);
    parts.push(buffer);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** Returns a file name with the date, such as `tillsync-backup-2026-03-01.tar.gz`. */
export function datedName(what: string, clock: Pick<Clock, 'nowMs'>): string {
  return `${what}-${isoUtc(clock.nowMs()).slice(0, 10)}.tar.gz`;
}

/** Resolves when the signal aborts. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}
