import { hostname } from 'node:os';
import { basename } from 'node:path';
import type { FindingLevel } from '../core/alarm.ts';
import { asTyped, TillsyncError } from '../core/errors.ts';
import { Poster } from '../core/post.ts';
import { type ProgramEnd, runProgram } from '../core/program.ts';
import { isoUtc } from '../core/time.ts';
import type { AlarmNews, ReceiverName } from './alarm-news.ts';
import { FINDINGS } from './findings.ts';

/** One message as a program receives it. Names stay; more may come. */
export interface AlarmReport {
  state: AlarmNews['state'] | 'test';
  /** The code that the status page and `tillsync doctor` use; `alarms.daily-max`, `alarms.test`. */
  key: string;
  level: FindingLevel;
  /** What is wrong, one sentence. */
  message: string;
  /** The words of the part that noticed it. */
  detail: string | null;
  /** What to do about it; null once it is over. */
  remedy: string | null;
  /** ISO 8601 UTC. */
  since: string | null;
  at: string;
  /** `alarms.name`, `shop.name`, or the name of the machine. */
  shop: string;
  host: string;
  /** Of tillsync. */
  version: string;
  /** All of it as one text, as chat services take it. */
  text: string;
}

export interface ReportContext {
  shop: string;
  dailyMax: number;
  version: string;
  nowMs: number;
}

export function alarmReport(news: AlarmNews, context: ReportContext): AlarmReport {
  const { state, key, level, detail, since } = news;
  const words =
    key === 'alarms.daily-max'
      ? {
          message: `Alarms were told ${context.dailyMax} times today; what is still wrong tomorrow is told then.`,
          remedy: 'See how things stand with: {tillsync} status',
        }
      : (news.words ?? FINDINGS[key]);
  const message = words.message.replace(': {count}', '');
  const remedy = state === 'healed' || words.remedy === '' ? null : asTyped(words.remedy);
  const isKnownBetter = news.words?.cause !== undefined;
  return complete({ state, key, level, message, detail, remedy, since }, context, isKnownBetter);
}

/** What `tillsync alarms test` sends. */
export function testReport(context: ReportContext): AlarmReport {
  const message = 'This is a test: alarms of tillsync arrive here.';
  return complete(
    { state: 'test', key: 'alarms.test', level: 'amber', message, detail: null, remedy: null, since: null },
    context,
  );
}

type Told = Omit<AlarmReport, 'at' | 'shop' | 'host' | 'version' | 'text'>;

/** `isKnownBetter`: the remedy is that of the cause, and the detail's own hint is not. */
function complete(told: Told, { shop, version, nowMs }: ReportContext, isKnownBetter = false): AlarmReport {
  const host = hostname();
  const at = isoUtc(nowMs);
  return { ...told, at, shop, host, version, text: textOf(told, shop, isKnownBetter) };
}

const MARKS: Record<AlarmReport['state'], (level: FindingLevel) => string> = {
  raised: (level) => (level === 'red' ? 'RED' : 'AMBER'),
  reminder: (level) => (level === 'red' ? 'STILL RED' : 'STILL AMBER'),
  healed: () => 'OVER',
  muted: () => 'NO MORE TODAY',
  test: () => 'TEST',
};

function textOf(
  { state, key, level, message, detail, remedy, since }: Told,
  shop: string,
  isKnownBetter: boolean,
): string {
  const place = since === null ? key : `${key}, since ${since}`;
  // Words that name a command say what to do themselves.
  const isRemedy = !isKnownBetter && detail?.includes('tillsync ');
  const more = (isRemedy ? [detail] : [detail, remedy]).filter(Boolean).join(' ');
  const what = state === 'healed' ? `It is over: ${message}` : message;
  return `[${MARKS[state](level)}] ${shop}: ${what}${more === '' ? '' : ` ${more}`} (${place})`;
}

/** Who is told of alarms. */
export interface AlarmReceiver {
  name: ReceiverName;
  /** For people; never the address itself, which may hold a secret. */
  description: string;
  /** Tells once, within the configured time. Throws a TillsyncError when it did not arrive. */
  tell(report: AlarmReport, signal: AbortSignal): Promise<void>;
}

const SAID_MAX = 300;

/**
 * Runs the program with its arguments once for each message, without a shell: JSON on its standard input, the same in
 * `TILLSYNC_ALARM_…`.
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
    hint: 'Check alarms.command with: {tillsync} alarms test',
  });
}

/**
 * Sends each message as JSON by POST, with the token as `Authorization: Bearer`; every 2xx counts as arrived. The address
 * may hold a secret, so it is never told.
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
    hint: 'Check alarms.url and the alarm-token with: {tillsync} alarms test',
  });
}
