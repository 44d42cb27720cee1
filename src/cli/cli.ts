import { Command } from 'commander';
import type { Environment } from '../config/source.ts';
import { asTillsyncError, type ErrorCode, TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc, type Random } from '../core/time.ts';

/** What a script learns from the exit code of every command. */
export const EXIT = {
  done: 0,
  failed: 1,
  /** Wrong usage or configuration. */
  usage: 2,
  /** Done in part: some items were rejected. */
  partial: 3,
  /** The platform asks for new tokens. */
  authRequired: 4,
  /** Ended at a person's Ctrl-C, as shells have it. */
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The exit code of a command that ended with an error of this code. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  switch (code) {
    case 'usage':
    case 'config-invalid':
      return EXIT.usage;
    case 'aborted':
      return EXIT.interrupted;
    case 'auth-required':
      return EXIT.authRequired;
    default:
      return EXIT.failed;
  }
}

/** Where a command writes; process.stdout and process.stderr fit. */
export interface TextSink {
  write(text: string | Uint8Array): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Everything of the process that a command may use, so that no command touches the process itself. */
export interface Cli {
  readonly env: Environment;
  readonly stdin: AsyncIterable<string | Uint8Array> & { readonly isTTY?: boolean | undefined };
  /** Results: a table for people, or exactly one JSON document. */
  readonly stdout: TextSink;
  /** Progress, advice and faults, for people. */
  readonly stderr: TextSink;
  readonly clock: Clock;
  readonly random: Random;
  /** Aborts when the person or the system asks the process to end. */
  readonly signal: AbortSignal;
  /** How the process ends unless an error says otherwise. */
  endWith(code: ExitCode): void;
}

/**
 * What steers a terminal or hides text on it: controls (C0, C1), line separators, marks of direction, characters
 * without width and tag characters.
 */
const UNSEEN =
  /[\p{Cc}\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/** Text from outside in one line, as a terminal may show it: what could steer or deceive is made visible. */
export function printable(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\r\t]/.test(char) ? ' ' : escaped(char)));
}

/** The same with its lines kept. */
export function printableLines(text: string): string {
  return text.replace(UNSEEN, (char) => (/[\n\t]/.test(char) ? char : escaped(char)));
}

/** JSON text that says the same and shows all of it: what a terminal would obey is escaped. */
export function printableJson(json: string): string {
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

/** The one JSON document of a command. */
export function writeJson(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document, null, 2))}\n`);
}

/** One of many documents, a line each. */
export function writeJsonLine(cli: Pick<Cli, 'stdout'>, document: unknown): void {
  cli.stdout.write(`${printableJson(JSON.stringify(document))}\n`);
}

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

/** What of the command line counts for every command. */
export interface GlobalOptions {
  config?: string;
}

/** For commands that give a result: `--json`. */
export interface JsonOption {
  json?: boolean;
}

/** A command whose help ends with examples. */
export function newCommand(name: string, description: string, examples: readonly string[]): Command {
  const lines = examples.map((example) => `  $ tillsync ${example}`);
  return new Command(name)
    .description(description)
    .addHelpText('after', `\nExample${lines.length > 1 ? 's' : ''}:\n${lines.join('\n')}`);
}

/** The same with `--json`. */
export function newResultCommand(name: string, description: string, examples: readonly string[]): Command {
  return newCommand(name, description, examples).option(
    '--json',
    'print one JSON document on standard output',
  );
}

/** A whole number from an option, at least `min`; throws `usage` for anything else. */
export function wholeNumberOption(name: string, min: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= min) return value;
    throw new TillsyncError('usage', `${name}: found "${text}"; allowed: a whole number from ${min}.`);
  };
}

/** A name with the day in it, such as `tillsync-backup-2026-03-01.tar.gz`. */
export function datedName(what: string, clock: Pick<Clock, 'nowMs'>): string {
  return `${what}-${isoUtc(clock.nowMs()).slice(0, 10)}.tar.gz`;
}
