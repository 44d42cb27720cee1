import { hostname } from 'node:os';
import { basename } from 'node:path';
import type { FindingLevel } from '../core/alarm.ts';
import { formatCommands, TillsyncError } from '../core/errors.ts';
import { Poster } from '../core/post.ts';
import { type ProgramEnd, runProgram } from '../core/program.ts';
import { isoUtc, localTimes } from '../core/time.ts';
import { FINDINGS } from './findings.ts';
import type { Notification, ReceiverName } from './notification-policy.ts';
import { type Language, reasonIn, spanishFinding } from './speech.ts';

/** An alarm message as the JSON object that receivers get. Field names never change; new fields may be added. */
export interface AlarmReport {
  state: Notification['state'] | 'test';
  /** Code of the finding, or `alarms.daily-max` or `alarms.test` for a message that is not about a finding. */
  key: string;
  level: FindingLevel;
  /** One sentence that says what is wrong. */
  message: string;
  /** Message from the part of tillsync that found the fault; null if it gave none. */
  detail: string | null;
  /** What to do; null if the alarm is over, or if the remedy of another alarm also ends this one. */
  remedy: string | null;
  /** When the fault began, ISO 8601 UTC; null if unknown. */
  since: string | null;
  at: string;
  /** Name of the shop: `shop.name`, else the name of the machine. */
  shop: string;
  host: string;
  /** Version of tillsync. */
  version: string;
  /** The whole message as one text, for chat services. */
  text: string;
}

export interface ReportContext {
  shop: string;
  dailyMax: number;
  version: string;
  /** Language of the texts for people. */
  language: Language;
  /** IANA time zone of the shop. */
  timeZone: string;
  nowMs: number;
}

export function alarmReport(news: Notification, context: ReportContext): AlarmReport {
  const { state, key, level, since } = news;
  const { message, remedy } = wordsOf(news, context);
  const detail = news.detail === null ? null : forPeople(news.detail, context);
  const todo = state === 'healed' || remedy === '' ? null : formatCommands(remedy);
  const isKnownBetter = news.words?.cause !== undefined;
  return complete({ state, key, level, message, detail, remedy: todo, since }, context, isKnownBetter);
}

/**
 * Returns the message and the remedy of an alarm. Commands in them may still have placeholders such as `{tillsync}`.
 */
function wordsOf({ key, words }: Notification, { dailyMax, language }: ReportContext) {
  if (key === 'alarms.daily-max') {
    const message = `Alarms were told ${dailyMax} times today; what is still wrong tomorrow is told then.`;
    const remedy = 'See how things stand with: {tillsync} status';
    return { message: reasonIn(language, message), remedy: reasonIn(language, remedy) };
  }
  const { message, remedy } = words ?? FINDINGS[key];
  const { count = null, cause } = words ?? {};
  const spanish = language === 'es' ? spanishFinding({ code: key, count, cause }) : undefined;
  // An empty remedy stays empty, because the remedy of an earlier finding also ends this one.
  if (spanish) return { message: spanish.message, remedy: remedy === '' ? '' : spanish.remedy };
  return { message: message.replace(': {count}', ''), remedy };
}

/** Translates a text into the shop's language, and converts its times to the shop's time zone. */
function forPeople(text: string, { language, timeZone, nowMs }: ReportContext): string {
  return localTimes(reasonIn(language, text), timeZone, nowMs);
}

/** Returns the report that `tillsync config test-alarms` sends. */
export function testReport(context: ReportContext): AlarmReport {
  const message = reasonIn(context.language, 'This is a test: alarms of tillsync arrive here.');
  return complete(
    { state: 'test', key: 'alarms.test', level: 'amber', message, detail: null, remedy: null, since: null },
    context,
  );
}

type Told = Omit<AlarmReport, 'at' | 'shop' | 'host' | 'version' | 'text'>;

/**
 * Completes the report of an alarm. If `isKnownBetter`, the remedy fits the known cause, so `text` contains the remedy
 * even if the detail names a command.
 */
function complete(told: Told, context: ReportContext, isKnownBetter = false): AlarmReport {
  const { shop, version, nowMs } = context;
  const host = hostname();
  const at = isoUtc(nowMs);
  return { ...told, at, shop, host, version, text: textOf(told, context, isKnownBetter) };
}

const MARKS: Record<Language, Record<AlarmReport['state'], Record<FindingLevel, string>>> = {
  en: {
    raised: { red: 'RED', amber: 'AMBER' },
    reminder: { red: 'STILL RED', amber: 'STILL AMBER' },
    healed: { red: 'OVER', amber: 'OVER' },
    muted: { red: 'NO MORE TODAY', amber: 'NO MORE TODAY' },
    test: { red: 'TEST', amber: 'TEST' },
  },
  es: {
    raised: { red: 'ROJO', amber: 'AMARILLO' },
    reminder: { red: 'SIGUE EN ROJO', amber: 'SIGUE EN AMARILLO' },
    healed: { red: 'TERMINÓ', amber: 'TERMINÓ' },
    muted: { red: 'HOY NO HAY MÁS', amber: 'HOY NO HAY MÁS' },
    test: { red: 'PRUEBA', amber: 'PRUEBA' },
  },
};
const SINCE: Record<Language, string> = { en: 'since', es: 'desde' };
const OVER: Record<Language, string> = { en: 'It is over', es: 'Ya terminó' };

function textOf(
  { state, key, level, message, detail, remedy, since }: Told,
  { shop, language, timeZone, nowMs }: ReportContext,
  isKnownBetter: boolean,
): string {
  const began = since === null ? '' : `, ${SINCE[language]} ${localTimes(since, timeZone, nowMs)}`;
  // A detail that names a command already says what to do, so the remedy is left out unless it fits a known cause.
  const isRemedy = !isKnownBetter && detail?.includes('tillsync ');
  const more = (isRemedy ? [detail] : [detail, remedy]).filter(Boolean).join(' ');
  const what = state === 'healed' ? `${OVER[language]}: ${message}` : message;
  const mark = MARKS[language][state][level];
  return `[${mark}] ${shop}: ${what}${more === '' ? '' : ` ${more}`} (${key}${began})`;
}

/** A receiver of alarms: a program or an address. */
export interface AlarmReceiver {
  name: ReceiverName;
  /** Description of the receiver for people. Names only the host of an address, because the rest may be secret. */
  description: string;
  /** Sends one message within the configured time. Throws a TillsyncError if the message did not arrive. */
  tell(report: AlarmReport, signal: AbortSignal): Promise<void>;
}

const SAID_MAX = 300;

/**
 * Runs the program once per message, without a shell. The program gets JSON on standard input, and the same fields in
 * `TILLSYNC_ALARM_…` variables.
 */
export function commandReceiver(
  command: readonly string[],
  timeoutMs: number,
  env: NodeJS.ProcessEnv,
): AlarmReceiver {
  return {
    name: 'command',
    description: `the command ${basename(command[0] ?? '')}`,
    async tell(report, signal) {
      const input = `${JSON.stringify(report)}\n`;
      const end = await runProgram(command, {
        input,
        env,
        variables: variablesOf(report),
        timeoutMs,
        signal,
      });
      if (!end.ok) throw commandFailed(end);
    },
  };
}

function variablesOf(report: AlarmReport): Record<string, string> {
  const { host: _host, version: _version, ...told } = report;
  return Object.fromEntries(
    Object.entries(told).map(([name, value]) => [`TILLSYNC_ALARM_${name.toUpperCase()}`, value ?? '']),
  );
}

function commandFailed({ what, said, cause }: ProgramEnd): TillsyncError {
  const words = said === '' ? '' : ` It said: ${said.slice(0, SAID_MAX).trim()}`;
  return new TillsyncError('internal', `The alarm command ${what}.${words}`, {
    cause,
    retryable: true,
    hint: 'Check alarms.command with: {tillsync} config test-alarms',
  });
}

/**
 * Sends each message as JSON by POST, with the token as `Authorization: Bearer`. A message has arrived if the status
 * is 2xx. Only the host of the address is shown, because the rest may contain a secret.
 */
export function urlReceiver(url: string, token: string | undefined, timeoutMs: number): AlarmReceiver {
  const { host } = new URL(url);
  return {
    name: 'url',
    description: `the address at ${host}`,
    async tell(report, signal) {
      const poster = new Poster(url, timeoutMs);
      const headers = {
        'user-agent': `tillsync/${report.version}`,
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
      };
      try {
        const { ok, what } = await poster.post(JSON.stringify(report), headers, signal);
        if (!ok) throw urlFailed(what);
      } finally {
        poster.close();
      }
    },
  };
}

function urlFailed(what: string): TillsyncError {
  return new TillsyncError('internal', `The alarm was not taken: ${what}.`, {
    retryable: true,
    hint: 'Check alarms.url and the alarm-token with: {tillsync} config test-alarms',
  });
}
