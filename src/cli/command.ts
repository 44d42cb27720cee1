import { Argument, Command, Option } from 'commander';
import { becomeStorageUser, requireRights } from '../app/installation.ts';
import type { Parts } from '../app/parts.ts';
import type { Readers } from '../app/readers.ts';
import { loadConfig, loadSetup } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { secretValues } from '../config/secrets.ts';
import { configPath, isSetUp, notSetUp } from '../config/source.ts';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { CallOptions } from '../platform/platform.ts';
import { type Cli, type ExitCode, writeJson } from './cli.ts';
import { notNow, wholeNumber } from './options.ts';
import { Progress, waitText } from './progress.ts';

/** An option of a command with the type of its value. */
export type Opt<T> = Option & { readonly value?: T };

export function flag(flags: string, description: string): Opt<boolean | undefined> {
  return new Option(flags, description);
}

/** A flag such as `--no-wait`: its value is false when it is given, else true. */
export function off(flags: string, description: string): Opt<boolean> {
  return new Option(flags, description);
}

export function text(flags: string, description: string): Opt<string | undefined>;
export function text(flags: string, description: string, fallback: string): Opt<string>;
export function text(flags: string, description: string, fallback?: string): Opt<string | undefined> {
  return new Option(flags, description).default(fallback);
}

export function required(flags: string, description: string): Opt<string> {
  return new Option(flags, description).makeOptionMandatory();
}

/** An option such as `--only <check...>`. */
export function several(flags: string, description: string): Opt<string[] | undefined> {
  return new Option(flags, description);
}

/** A whole number, at least `min`. */
export function whole(flags: string, description: string, min: number): Opt<number | undefined>;
export function whole(flags: string, description: string, min: number, fallback: number): Opt<number>;
export function whole(flags: string, description: string, min: number, fallback?: number): Opt<unknown> {
  const [name = ''] = flags.split(' ');
  return new Option(flags, description).argParser(wholeNumber(name, min)).default(fallback);
}

export function choice<T extends string>(
  flags: string,
  description: string,
  choices: readonly T[],
): Opt<T | undefined>;
export function choice<T extends string>(
  flags: string,
  description: string,
  choices: readonly T[],
  fallback: T,
): Opt<T>;
export function choice(
  flags: string,
  description: string,
  choices: readonly string[],
  fallback?: string,
): Option {
  return new Option(flags, description).choices(choices).default(fallback);
}

/** An option whose text `parse` reads; it throws `usage`. */
export function parsed<T>(
  flags: string,
  description: string,
  parse: (text: string, before?: T) => T,
): Opt<T | undefined> {
  return new Option(flags, description).argParser(parse);
}

export const LIMIT = whole('--limit <n>', 'at most this many', 1, 20);
/** For a command that calls the platform. */
export const WAIT = off('--no-wait', 'end at once, with exit code 1, if the platform may not be called now');
/** `true`: one document; `lines`: one document a line. */
export const JSON_LINES: Opt<boolean | 'lines' | undefined> = new Option(
  '--json [lines]',
  'print one JSON document, or with `lines` one a line',
).choices(['lines']);

/** What of the command line counts for every command. */
export interface CommonOptions {
  config?: string;
  json?: boolean | 'lines' | undefined;
}

/** One call of a command. */
export interface Call<O = unknown, A = unknown> {
  cli: Cli;
  options: O & CommonOptions;
  argument: A;
}

/** What a command ends with; what is not there is not told. */
export interface Result {
  /** The one document of `--json`. */
  json?: unknown;
  /** For people, on standard output. */
  text?: string | (() => string);
  /** For people, on standard error above and below the text. */
  above?: string;
  below?: string;
  exit?: ExitCode;
}

/** What the values of such options are. */
export type Values<S> = { [K in keyof S]: S[K] extends Opt<infer T> ? T : never };
type ArgumentValue<F extends string> = F extends `${string}...${string}`
  ? string[]
  : F extends `<${string}`
    ? string
    : string | undefined;

export interface CommandSpec<S, F extends string> {
  name: string;
  description: string;
  /** Without `tillsync`. */
  examples: readonly string[];
  /** Such as `<file>`, `[file]` or `[orders...]`, with what it means. */
  argument?: readonly [flags: F, description: string];
  /** Each under the name that commander gives to its value. `--json` is there unless `json` is false or given here. */
  options?: S;
  json?: false;
  /** Stands below the examples. */
  more?: string;
  run(call: Call<Values<S>, ArgumentValue<F>>): Promise<Result | undefined> | Result;
}

/** A command or a group of them, by its first word. */
export interface CommandMaker {
  name: string;
  make(cli: Cli): Command;
}

/** Defines a command: its help, its options, and how its result is written. */
export function command<S extends Record<string, Option> = Record<never, Option>, F extends string = '[]'>(
  spec: CommandSpec<S, F>,
): CommandMaker {
  const make = (cli: Cli) => {
    const examples = spec.examples.map((example) => `  $ tillsync ${example}`);
    const made = new Command(spec.name)
      .description(spec.description)
      .addHelpText('after', `\nExample${examples.length > 1 ? 's' : ''}:\n${examples.join('\n')}`);
    const options: Record<string, Option> = spec.options ?? {};
    if (spec.argument) made.addArgument(new Argument(...spec.argument));
    if (spec.json !== false && !('json' in options)) {
      made.option('--json', 'print one JSON document on standard output');
    }
    for (const option of Object.values(options)) made.addOption(option);
    if (spec.more !== undefined) made.addHelpText('after', spec.more);
    return made.action(async () => {
      const given: Call<Values<S>, ArgumentValue<F>>['options'] = made.optsWithGlobals();
      const result = await spec.run({ cli, options: given, argument: made.processedArgs[0] });
      if (result) writeResult(cli, given.json === true, result);
    });
  };
  return { name: spec.name, make };
}

export function group(name: string, description: string, ...inner: CommandMaker[]): CommandMaker {
  const make = (cli: Cli) => {
    const parent = new Command(name).description(description);
    for (const each of inner) parent.addCommand(each.make(cli));
    return parent;
  };
  return { name, make };
}

function writeResult(cli: Cli, isJson: boolean, { json, text, above, below, exit }: Result): void {
  if (exit !== undefined) cli.endWith(exit);
  if (isJson) {
    if (json !== undefined) writeJson(cli, json);
    return;
  }
  if (above !== undefined) cli.stderr.write(above);
  if (text !== undefined) cli.stdout.write(typeof text === 'string' ? text : text());
  if (below !== undefined) cli.stderr.write(below);
}

/** Where a command reads its configuration. */
export function sourceOf({ cli, options }: Call) {
  return { file: options.config, env: cli.env };
}

/** The configuration; from then on this process acts as the owner of the storage directory. */
export function configOf(call: Call): Config {
  const config = loadConfig(sourceOf(call));
  becomeOwner(call, config, false);
  return config;
}

/** Acts as the owner of the storage directory from now on, in which files will be made if it `writes`. */
export function becomeOwner({ cli, options }: Call, { storage }: Config, writes: boolean): void {
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: storage.directory, configFile, writes });
}

/** For commands that only look: opens what is stored, lets `use` look, and closes it whatever happens. */
export async function withReaders<T>(
  call: Call,
  use: (readers: Readers, config: Config) => Promise<T> | T,
): Promise<T> {
  // Only commands that open something pay for loading it.
  const { openReaders } = await import('../app/readers.ts');
  const config = configOf(call);
  const readers = await openReaders({ config, clock: call.cli.clock }).catch((error: unknown) => {
    throw hasCode(error, 'not-found') && !isSetUp(config) ? notSetUp() : error;
  });
  try {
    return await use(readers, config);
  } finally {
    await readers.close();
  }
}

/** What a command that calls the platform works with. */
export interface CommandTools {
  parts: Parts;
  config: Config;
  progress: Progress;
  /** What the parts log to; warnings are for the daemon's log, errors show above the progress line. */
  log: Log;
  /**
   * Ends waits and calls at Ctrl-C, and shows on the progress line what is waited for. With `--no-wait` it throws
   * `rate-limited` instead of waiting for the first call.
   */
  call: CallOptions & { signal: AbortSignal; onWait: Progress['wait'] };
}

/**
 * For commands that change something or call the platform: builds the daemon's own parts, so that the same
 * budget, token pair and merge hold beside a running daemon. Errors in the log of the parts go to standard error.
 */
export async function withParts<T>(call: Call, use: (tools: CommandTools) => Promise<T>): Promise<T> {
  const { openParts } = await import('../app/parts.ts');
  const { createLogger } = await import('../core/logger.ts');
  const { clock, random } = call.cli;
  const { config, secrets } = loadSetup(sourceOf(call));
  if (!isSetUp(config)) throw notSetUp();
  becomeOwner(call, config, true);
  requireRights(config.storage.directory, 'write');
  const progress = new Progress(call.cli);
  const noted: string[] = [];
  const { log, registerSecret } = createLogger({
    level: 'error',
    pretty: false,
    stream: { write: (line) => noted.push(noteOf(line)) },
    clock,
    secrets: secretValues(secrets),
  });
  const parts = await openParts({ config, secrets, clock, random, log, onSecret: registerSecret });
  try {
    return await use({ parts, config, progress, log, call: platformCall(call, progress) });
  } catch (error) {
    // The error itself is told by whoever catches it.
    const at = error instanceof Error ? noted.indexOf(error.message) : -1;
    if (at >= 0) noted.splice(at, 1);
    throw error;
  } finally {
    for (const note of noted) progress.note(note);
    progress.end();
    await parts.close();
  }
}

function platformCall({ cli, options }: Call, progress: Progress): CommandTools['call'] {
  const call = { signal: cli.signal, onWait: progress.wait.bind(progress) };
  if ((options as { wait?: boolean }).wait !== false) return call;
  let hasSent = false;
  return {
    ...call,
    onSend: () => {
      hasSent = true;
    },
    onWait: (wait) => {
      if (!hasSent) throw notNow(waitText(wait), wait.waitMs);
      progress.wait(wait);
    },
  };
}

/** What a person reads of a line of the log. */
function noteOf(line: string): string {
  const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
  return [msg, err?.message].filter((part) => part !== undefined).join(' ');
}
