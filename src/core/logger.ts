import { fstatSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type LogFn, type Logger as PinoLogger, pino, stdSerializers } from 'pino';
import type { PrettyOptions } from 'pino-pretty';
import { firstNames, formatCommands, TillsyncError } from './errors.ts';
import { type Log, type LogConfig, secretForms } from './log.ts';
import { type Clock, isoUtc } from './time.ts';

interface LoggerOptions extends LogConfig {
  /** `auto` is easy to read on a terminal, and JSON elsewhere. */
  pretty: 'auto' | boolean;
  /** Whether lines are written to systemd's journal, which reads a priority from the beginning of a line. */
  toJournal?: boolean;
  /** Stream to which lines are written, such as `process.stdout`. */
  stream: { write(text: string): unknown; isTTY?: boolean | undefined };
  clock: Clock;
  /** Secrets that stay valid while the process runs. Secrets that rotate are registered later. */
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
 * Returns a logger that writes JSON, or pretty lines on a terminal. It hides secrets by the name of their field and by
 * their value. `registerSecret` hides a further value, such as a rotated token.
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
    // Each line is scrubbed before and after formatting, because JSON and the pretty form escape values differently.
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
/**
 * Maximum number of rotating secrets that are hidden. Tokens rotate twice an hour, so the oldest of them became invalid
 * days ago.
 */
const REGISTERED_MAX = 256;

/** Hides registered secrets in each line, and everything that looks like a JWT. */
class LogScrubber {
  readonly #lasting: string[];
  readonly #rotating = new Map<string, string[]>();
  /** All forms of all secrets, the longest first, so that a secret that contains another one is hidden as a whole. */
  #forms: string[] = [];

  constructor(lasting: readonly string[]) {
    this.#lasting = lasting.flatMap(secretForms);
    this.#sort();
  }

  /** Hides every form of `value` in all later lines. */
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

/** Priorities of syslog by level, as in sd-daemon(3). */
const PRIORITIES: Record<string, number> = { fatal: 2, error: 3, warn: 4, info: 6, debug: 7, trace: 7 };

function priorityOf(line: string): string {
  const level = /^\{"level":"(\w+)"/.exec(line)?.[1] ?? '';
  return `<${PRIORITIES[level] ?? 6}>`;
}

/** Whether the file descriptor is systemd's journal, which `$JOURNAL_STREAM` identifies. */
export function isJournal(fd: number, env: Readonly<Record<string, string | undefined>>): boolean {
  if (env.JOURNAL_STREAM === undefined) return false;
  const { dev, ino } = fstatSync(fd);
  return env.JOURNAL_STREAM === `${dev}:${ino}`;
}

/** Replaces the placeholders of `formatCommands` in a message. */
function withCommands(this: PinoLogger, words: Parameters<LogFn>, method: LogFn): void {
  const [fields, message] = words as [object, unknown];
  const isWithCommands = typeof message === 'string' && message.includes('{');
  method.call(this, fields, isWithCommands ? formatCommands(message) : (message as string | undefined));
}

/** Returns the formatter for a terminal. pino-pretty is loaded only here, so that a service saves time and memory. */
function prettyLine(colorize: boolean): (line: string) => string {
  const { prettyFactory } = createRequire(import.meta.url)('pino-pretty') as typeof import('pino-pretty');
  const prettyOptions: PrettyOptions = { colorize, translateTime: 'SYS:HH:MM:ss', singleLine: true };
  return prettyFactory(prettyOptions);
}

const CAUSES_MAX = 4;

/** Returns an error as fields of the log. Only an unexpected error has a stack. */
function serializeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error)) return error;
  if (isOfShape(error)) {
    const frames = error.stack?.split('\n').filter((line) => line.startsWith('    at '));
    return { type: error.name, message: shapeFaults(error), stack: frames?.join('\n') };
  }
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

/** Error of zod, whose message is a list of all faults as JSON. */
interface ShapeError extends Error {
  issues: readonly { code: string; path: readonly PropertyKey[] }[];
}

function isOfShape(error: Error): error is ShapeError {
  return error.name.endsWith('ZodError') && 'issues' in error && Array.isArray(error.issues);
}

/** Returns where the first faults are and of which kind, without the values that are there or should be. */
function shapeFaults({ issues }: ShapeError): string {
  return firstNames(issues, ({ code, path }) => `${path.map(String).join('.') || 'the whole'}: ${code}`).join(
    '; ',
  );
}

function causeOf(cause: unknown, depth: number): unknown {
  if (cause instanceof TillsyncError) return serializeError(cause, depth + 1);
  if (!(cause instanceof Error)) return cause === undefined ? undefined : String(cause);
  if (isOfShape(cause)) return { name: cause.name, message: shapeFaults(cause) };
  return { name: cause.name, message: cause.message, ...('code' in cause ? { code: cause.code } : {}) };
}
