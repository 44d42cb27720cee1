import { Argument, Command, Option } from 'commander';
import { becomeStorageUser, requireRights } from '../app/installation.ts';
import type { ReadOnlyServices } from '../app/read-only-services.ts';
import type { Services } from '../app/services.ts';
import { loadConfig, loadSetup, readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { branchCallsNobody, isBranch } from '../config/roles.ts';
import { secretValues } from '../config/secrets.ts';
import { configPath, isSetUp, notSetUp } from '../config/source.ts';
import { hasCode, TillsyncError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { AuditEvent } from '../db/audit.ts';
import type { CallOptions } from '../platform/platform.ts';
import { type Cli, type ExitCode, printableLines, writeJson } from './cli.ts';
import { notNow, wholeNumber } from './options.ts';
import { Progress, waitText } from './progress.ts';
import { speaker, spokenError } from './speech.ts';

/** An option that has more than a description. `T` is the type of its value. */
export interface Opt<T> {
  description: string;
  set(option: Option): Option;
  /** Carries only the type `T`; it is never set. */
  value?: T;
}

export function withDefault(description: string, fallback: string): Opt<string> {
  return { description, set: (option) => option.default(fallback) };
}

export function mandatory(description: string): Opt<string> {
  return { description, set: (option) => option.makeOptionMandatory() };
}

/** Returns an option whose value is a whole number of at least `min`. */
export function whole<F extends number | undefined = undefined>(
  description: string,
  min: number,
  fallback?: F,
): Opt<number | F> {
  const set = (option: Option) => option.argParser(wholeNumber(option.long ?? '', min)).default(fallback);
  return { description, set };
}

export function choice<const T extends string, F extends T | undefined = undefined>(
  description: string,
  choices: readonly T[],
  fallback?: F,
): Opt<T | F> {
  return { description, set: (option) => option.choices(choices).default(fallback) };
}

/** Returns an option whose text `parse` reads; `parse` throws `usage` for invalid text. */
export function parsed<T, F extends T | undefined = undefined>(
  description: string,
  parse: (text: string, before?: T) => T,
  fallback?: F,
): Opt<T | F> {
  return { description, set: (option) => option.argParser(parse).default(fallback) };
}

/** Heading in the help of the commands and options that only a chain needs. The help of a single store has none of them. */
export const OF_CHAIN = 'Hub and branches:';

/** Returns an option that the help shows only at a hub or a branch. */
export function ofChain<T = string | undefined>(given: string | Opt<T>): Opt<T> {
  if (typeof given === 'string') return { description: given, set: (option) => option.helpGroup(OF_CHAIN) };
  return { ...given, set: (option) => given.set(option).helpGroup(OF_CHAIN) };
}

/** The option `--limit <n>`. */
export const LIMIT = whole('Entries to show at most', 1, 20);
/** Description of `--no-wait`, for a command that calls the platform. */
export const WAIT = "Don't wait for the rate limit; exit with code 1 instead";
/** The option `--json [lines]`: `true` prints one document, `lines` one document per line. */
export const JSON_LINES: Opt<boolean | 'lines' | undefined> = choice(
  'Print JSON, or with `lines` one document per line',
  ['lines'],
);

/** Checks `-f, --follow` together with `--json`. Throws `usage` if one JSON document would never end. */
export function refuseEndless(
  what: string,
  { follow, json }: { follow?: boolean | undefined } & CommonOptions,
) {
  if (!follow || json !== true) return;
  throw new TillsyncError('usage', `${what} has no end, so it is no single document.`, {
    hint: 'Use --json lines for one document a line.',
  });
}

/** Options that every command has. */
export interface CommonOptions {
  config?: string;
  json?: boolean | 'lines' | undefined;
}

/** The options and argument with which a command is called. */
export interface Call<O = unknown, A = unknown> {
  cli: Cli;
  options: O & CommonOptions;
  argument: A;
}

/** Result of a command. Fields that are left out are not written. */
export interface Result {
  /** The document that `--json` prints. */
  json?: unknown;
  /** Text of the file that `--csv` prints. */
  csv?: string;
  /** Text for people on standard output. */
  text?: string | (() => string);
  /** Text for people on standard error, above and below the result. */
  above?: string;
  below?: string;
  exit?: ExitCode;
}

/**
 * Options by their flags, such as `--since <time>`. The value is the option's description, or an `Opt`, which also says
 * how the value is read.
 */
type Options = Readonly<Record<string, string | Opt<unknown>>>;

type Camel<S extends string> = S extends `${infer A}-${infer B}` ? `${A}${Capitalize<Camel<B>>}` : S;
type Name<F> = F extends `${string}--no-${infer N}`
  ? Camel<N>
  : F extends `${string}--${infer N} ${string}`
    ? Camel<N>
    : F extends `${string}--${infer N}`
      ? Camel<N>
      : never;
type TextOf<F> = F extends `${string}...${string}` ? string[] : string;
type Value<F, D> =
  D extends Opt<infer T>
    ? T
    : F extends `--no-${string}`
      ? boolean
      : (F extends `${string}<${string}` ? TextOf<F> : boolean) | undefined;

/** Values of the options, as a command gets them: `--dry-run` is `dryRun`. */
export type Values<S> = { [F in keyof S as Name<F>]: Value<F, S[F]> };
type ArgumentValue<F extends string> = F extends `[${string}...${string}`
  ? string[]
  : F extends `<${string}`
    ? TextOf<F>
    : string | undefined;

interface CommandSpec<S, F extends string> {
  description: string;
  /** Example command lines, without `tillsync`. */
  examples: readonly string[];
  /** The argument, such as `<file>`, `[file]` or `[orders...]`, with its description. */
  argument?: readonly [flags: F, description: string];
  /** The command's options. `--json` is added unless `json` is false or the options have `--json [lines]`. */
  options?: S;
  json?: false;
  /** Text that the help shows below the examples. */
  more?: string;
  run(call: Call<Values<S>, ArgumentValue<F>>): Promise<Result | undefined> | Result;
}

/** Makes a command, or a group of commands, under the given name. */
export type MakeCommand = (name: string, cli: Cli) => Command;

/** Defines a command: its help, its options, and how its result is written. */
export function command<S extends Options = Record<never, string>, F extends string = '[]'>(
  spec: CommandSpec<S, F>,
): MakeCommand {
  return (name, cli) => {
    const examples = spec.examples.map((example) => `  $ tillsync ${example}`);
    const made = new Command(name)
      .description(spec.description)
      .addHelpText('after', `\nExample${examples.length > 1 ? 's' : ''}:\n${examples.join('\n')}`);
    if (spec.argument) made.addArgument(new Argument(...spec.argument));
    const options: Options = spec.options ?? {};
    if (spec.json !== false && !('--json [lines]' in options)) {
      made.option('--json', 'Print JSON');
    }
    for (const [flags, given] of Object.entries(options)) {
      const isPlain = typeof given === 'string';
      const option = new Option(flags, isPlain ? given : given.description);
      made.addOption(isPlain ? option : given.set(option));
    }
    if (spec.more !== undefined) made.addHelpText('after', spec.more);
    return made.action(async () => {
      const given: Call<Values<S>, ArgumentValue<F>>['options'] = made.optsWithGlobals();
      const { json, csv = false } = given as CommonOptions & { csv?: boolean };
      if (csv && json) throw new TillsyncError('usage', 'Give --csv or --json, not both.');
      const result = await spec.run({ cli, options: given, argument: made.processedArgs[0] });
      if (result) writeResult(cli, json === true, result);
    });
  };
}

export function group(description: string, inner: Record<string, MakeCommand>): MakeCommand {
  return (name, cli) => {
    const parent = new Command(name).description(description);
    for (const [word, make] of Object.entries(inner)) parent.addCommand(make(word, cli));
    return parent;
  };
}

function writeResult(cli: Cli, isJson: boolean, { json, csv, text, above, below, exit }: Result): void {
  if (exit !== undefined) cli.endWith(exit);
  if (isJson) {
    if (json !== undefined) writeJson(cli, json);
    return;
  }
  // Only a terminal gets CSV with control characters made visible.
  if (csv !== undefined)
    cli.stdout.write(cli.stdout.isTTY ? printableLines(csv.replaceAll('\r\n', '\n')) : csv);
  if (above !== undefined) cli.stderr.write(above);
  if (text !== undefined) cli.stdout.write(typeof text === 'string' ? text : text());
  if (below !== undefined) cli.stderr.write(below);
}

/** Returns where a command finds its configuration. */
export function sourceOf({ cli, options }: Pick<Call, 'cli' | 'options'>) {
  return { file: options.config, env: cli.env };
}

/** Loads the configuration. From then on, this process acts as the owner of the storage directory. */
export function configOf(call: Call): Config {
  const config = loadConfig(sourceOf(call));
  becomeOwner(call, config, false);
  return config;
}

/** Becomes the owner of the storage directory; `writes` is true if the command creates files there. */
export function becomeOwner({ cli, options }: Call, { storage }: Config, writes: boolean): void {
  const configFile = configPath(options.config, cli.env);
  becomeStorageUser({ directory: storage.directory, configFile, writes });
}

/** Runs `use` with read-only access to the stored data, for commands that write nothing. Always closes the data. */
export async function withReaders<T>(
  call: Call,
  use: (readers: ReadOnlyServices, config: Config) => Promise<T> | T,
): Promise<T> {
  // Imported here, so that commands that open nothing start faster.
  const { openReadOnlyServices } = await import('../app/read-only-services.ts');
  const config = configOf(call);
  const readers = await openReadOnlyServices({ config, clock: call.cli.clock }).catch((error: unknown) => {
    throw hasCode(error, 'not-found') && !isSetUp(config) ? notSetUp() : error;
  });
  try {
    return await use(readers, config);
  } finally {
    await readers.close();
  }
}

/**
 * Waits for a command whose texts are in the shop's language, and translates its error too. The error stays English
 * with `--json` and if the configuration is unreadable.
 */
export async function spokenFaults<T>(call: Call, running: Promise<T>): Promise<T> {
  try {
    return await running;
  } catch (error) {
    const read = readConfig(sourceOf(call));
    throw call.options.json || 'faults' in read
      ? error
      : spokenError(error, speaker(read.config, call.cli.clock));
  }
}

/** Tools of a command that changes something or calls the platform. */
export interface CommandTools {
  services: Services;
  config: Config;
  progress: Progress;
  /**
   * Records an action that is no write to the mirror, such as new tokens or a poll, in the audit log after the action.
   * A write to the mirror is recorded in its own transaction instead.
   */
  note(auditEvent: Omit<AuditEvent, 'who'>): Promise<void>;
  /** Log of the services. Its errors are shown on standard error when the command ends; other entries are dropped. */
  log: Log;
  /** Files with the service's secrets that this user is not permitted to read. */
  unseen: readonly string[];
  /**
   * Options of a call to the platform. Ctrl-C aborts the call, and the progress line shows why it waits. With
   * `--no-wait`, a wait before the first request throws `rate-limited`.
   */
  call: CallOptions & { signal: AbortSignal; onWait: Progress['wait'] };
}

/**
 * Runs `use` with the same services as the daemon, for commands that change something. Rate budget, token pair and
 * merge rules are thus shared with a running daemon. Errors in the log are shown on standard error.
 */
export async function withServices<T>(call: Call, use: (tools: CommandTools) => Promise<T>): Promise<T> {
  const { openServices } = await import('../app/services.ts');
  const { createLogger } = await import('../core/logger.ts');
  const { clock, random } = call.cli;
  const { config, secrets, unseen } = loadSetup(sourceOf(call));
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
  const services = await openServices({ config, secrets, clock, random, log, onSecret: registerSecret });
  try {
    const note: CommandTools['note'] = (auditEvent) =>
      services.stores.write(({ audit }) => audit.note({ who: call.cli.who, ...auditEvent }));
    return await use({ services, config, progress, note, log, unseen, call: platformCall(call, progress) });
  } catch (error) {
    // The error is shown where it is caught, so it is not shown a second time from the log.
    const at = error instanceof Error ? noted.indexOf(error.message) : -1;
    if (at >= 0) noted.splice(at, 1);
    throw error;
  } finally {
    for (const note of noted) progress.note(note);
    progress.end();
    await services.close();
  }
}

/**
 * Throws `usage` at a branch, because only its hub calls the platform. Must be called before anything is asked,
 * opened or written.
 */
export function requirePlatform(call: Call): void {
  const { config } = loadSetup(sourceOf(call));
  if (isBranch(config)) throw branchCallsNobody();
}

/** Does the same as `withServices`, but throws `usage` at a branch. */
export async function withPlatform<T>(call: Call, use: (tools: CommandTools) => Promise<T>): Promise<T> {
  requirePlatform(call);
  return withServices(call, use);
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

/** Returns the text of a log line for a person. */
function noteOf(line: string): string {
  const { msg, err } = JSON.parse(line) as { msg?: string; err?: { message?: string } };
  return [msg, err?.message].filter((part) => part !== undefined).join(' ');
}
