import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type LogFn, type Logger as PinoLogger, pino, stdSerializers } from 'pino';
import type { PrettyOptions } from 'pino-pretty';
import { asTyped, TillsyncError } from './errors.ts';
import { type Log, type LogConfig, secretForms } from './log.ts';
import { type Clock, isoUtc } from './time.ts';

export interface LoggerOptions extends LogConfig {
  /** Whether lines go to the journal of systemd, which takes its priority from a prefix and removes that. */
  toJournal?: boolean;
  /** Where lines go; process.stdout and process.stderr fit. */
  stream: { write(text: string): unknown; isTTY?: boolean | undefined };
  clock: Clock;
  /** Secrets that last as long as the process; those that rotate are registered as they come. */
  secrets?: readonly string[];
}

const SECRET_KEYS = [
  'token',
  'accessToken',
  'refreshToken',
  'secret',
  'webhookSecret',
  'webhookSecrets',
  'apiKey',
  'localApiKey',
  'authorization',
  'password',
  '["x-webhook-secret"]',
  '["x-api-key"]',
];
const REDACTED_PATHS = SECRET_KEYS.flatMap((key) => {
  const step = key.startsWith('[') ? key : `.${key}`;
  return [key, `*${step}`, `*.*${step}`];
});

/**
 * Lines as JSON, or readable on a terminal; times from the clock; secrets hidden by name and by value.
 * `registerSecret` hides a value that became known while running, such as a rotated token.
 */
export function createLogger(options: LoggerOptions): { log: Log; registerSecret(value: string): void } {
  const { stream, clock, level } = options;
  const scrubber = new LogScrubber(options.secrets ?? []);
  const pretty = options.pretty === 'auto' ? stream.isTTY === true : options.pretty;
  const shape = pretty ? prettyLine(stream.isTTY === true) : (line: string) => line;
  const log = pino(
    {
      level,
      base: null,
      timestamp: () => `,"time":"${isoUtc(clock.nowMs())}"`,
      hooks: { logMethod: withCommands },
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: REDACTED_PATHS, censor: '[redacted]' },
      serializers: { err: serializeError, error: serializeError },
    },
    // Scrubbed before and after: each shape escapes a value in its own way.
    {
      write: (line: string) => {
        const priority = options.toJournal ? priorityOf(line) : '';
        stream.write(priority + scrubber.scrub(shape(scrubber.scrub(line))));
      },
    },
  );
  return { log, registerSecret: (value) => scrubber.register(value) };
}

const HIDDEN = '[redacted]';
const JWT = /\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?/g;
const BEARER = /\b(Bearer\s+)[^\s"'\\,;]+/gi;
/** Opaque tokens that rotate twice an hour fill this in days, long after the platform forgot the oldest. */
const REGISTERED_MAX = 256;

/** The last gate before a log line leaves: hides registered secrets and anything that looks like a JWT. */
class LogScrubber {
  readonly #lasting: string[];
  readonly #rotating = new Map<string, string[]>();
  /** The longest first, so that a secret that contains another is hidden whole. */
  #forms: string[] = [];

  constructor(lasting: readonly string[]) {
    this.#lasting = lasting.flatMap(secretForms);
    this.#sort();
  }

  /** Hides `value`, however it is written, in every line from now on. */
  register(value: string): void {
    const rotating = this.#rotating;
    rotating.delete(value);
    rotating.set(value, secretForms(value));
    if (rotating.size > REGISTERED_MAX) rotating.delete(rotating.keys().next().value ?? '');
    this.#sort();
  }

  scrub(line: string): string {
    let text = line;
    for (const form of this.#forms) if (text.includes(form)) text = text.replaceAll(form, HIDDEN);
    return text.replace(JWT, HIDDEN).replace(BEARER, `$1${HIDDEN}`);
  }

  #sort(): void {
    const forms = new Set([...this.#lasting, ...[...this.#rotating.values()].flat()]);
    this.#forms = [...forms].sort((a, b) => b.length - a.length);
  }
}

/** Of syslog, as sd-daemon(3) has it. */
const PRIORITIES: Record<string, number> = { fatal: 2, error: 3, warn: 4, info: 6, debug: 7, trace: 7 };

function priorityOf(line: string): string {
  const level = /^\{"level":"(\w+)"/.exec(line)?.[1] ?? '';
  return `<${PRIORITIES[level] ?? 6}>`;
}

/** Whether this file descriptor is the journal that systemd connected: `$JOURNAL_STREAM` names it. */
export function isJournal(fd: number, env: Readonly<Record<string, string | undefined>>): boolean {
  if (env.JOURNAL_STREAM === undefined) return false;
  const { dev, ino } = fstatSync(fd);
  return env.JOURNAL_STREAM === `${dev}:${ino}`;
}

/** Messages name commands as they are typed here. */
function withCommands(this: PinoLogger, words: Parameters<LogFn>, method: LogFn): void {
  const [fields, message] = words as [object, unknown];
  method.call(this, fields, typeof message === 'string' ? asTyped(message) : undefined);
}

/** Loaded only where somebody looks on: a service pays neither its start time nor its memory. */
function prettyLine(colorize: boolean): (line: string) => string {
  const { prettyFactory } = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  const prettyOptions: PrettyOptions = { colorize, translateTime: 'SYS:HH:MM:ss', singleLine: true };
  return prettyFactory(prettyOptions);
}

const CAUSES_MAX = 4;

/** Our errors by what they mean; the stack only of what nobody foresaw. */
function serializeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return error;
  if (!(error instanceof TillsyncError) || error.code === 'internal') return stdSerializers.err(error);
  return {
    code: error.code,
    message: error.message,
    hint: error.hint,
    httpStatus: error.httpStatus,
    retryAfterMs: error.retryAfterMs,
    cause: depth < CAUSES_MAX ? causeOf(error.cause, depth) : undefined,
  };
}

function causeOf(cause: unknown, depth: number): unknown {
  if (cause instanceof TillsyncError) return serializeError(cause, depth + 1);
  if (!(cause instanceof Error)) return cause === undefined ? undefined : String(cause);
  return { name: cause.name, message: cause.message, ...('code' in cause ? { code: cause.code } : {}) };
}
