import type { ChildProcess } from 'node:child_process';
import { hostname } from 'node:os';
import { basename } from 'node:path';
import { asTyped, TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { AlarmNews, ReceiverName } from './alarm-news.ts';
import { FINDING_SENTENCES, type FindingLevel } from './finding.ts';

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
      : FINDING_SENTENCES[key];
  const message = words.message.replace(': {count}', '');
  const remedy = state === 'healed' ? null : asTyped(words.remedy);
  return complete({ state, key, level, message, detail, remedy, since }, context);
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

function complete(told: Told, { shop, version, nowMs }: ReportContext): AlarmReport {
  const host = hostname();
  const at = isoUtc(nowMs);
  return { ...told, at, shop, host, version, text: textOf(told, shop) };
}

const MARKS: Record<AlarmReport['state'], (level: FindingLevel) => string> = {
  raised: (level) => (level === 'red' ? 'RED' : 'AMBER'),
  reminder: (level) => (level === 'red' ? 'STILL RED' : 'STILL AMBER'),
  healed: () => 'OVER',
  muted: () => 'NO MORE TODAY',
  test: () => 'TEST',
};

function textOf({ state, key, level, message, detail, remedy, since }: Told, shop: string): string {
  const place = since === null ? key : `${key}, since ${since}`;
  // Words that name a command say what to do themselves.
  const more = (detail?.includes('tillsync ') ? [detail] : [detail, remedy]).filter(Boolean).join(' ');
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

/** What a program needs to find its way. All else stays here: secrets, credentials, systemd's sockets. */
const PASSED_ON = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TILLSYNC_CONFIG)$/;
const SAID_MAX = 300;

/**
 * Runs the program with its arguments once for each message, without a shell: JSON on its standard input, the same in
 * `TILLSYNC_ALARM_…`.
 */
export function commandReceiver(
  [program = '', ...words]: readonly string[],
  timeoutMs: number,
  env: NodeJS.ProcessEnv,
): AlarmReceiver {
  const passed = Object.entries(env).filter(([name]) => PASSED_ON.test(name));
  return {
    name: 'command',
    description: `the command ${basename(program)}`,
    async tell(report, signal) {
      // Most stores have no command, and pay nothing for it.
      const { spawn } = await import('node:child_process');
      const child = spawn(program, words, {
        cwd: '/',
        env: { ...Object.fromEntries(passed), ...variablesOf(report) },
        // A group of its own, so that what it started ends with it.
        detached: true,
        stdio: ['pipe', 'ignore', 'pipe'],
      });
      // A command need not read it.
      child.stdin?.on('error', () => {});
      child.stdin?.end(`${JSON.stringify(report)}\n`);
      await endOf(child, { timeoutMs, signal });
    },
  };
}

function variablesOf(report: AlarmReport): Record<string, string> {
  const { host: _host, version: _version, ...told } = report;
  return Object.fromEntries(
    Object.entries(told).map(([name, value]) => [`TILLSYNC_ALARM_${name.toUpperCase()}`, value ?? '']),
  );
}

function endOf(child: ChildProcess, limit: { timeoutMs: number; signal: AbortSignal }): Promise<void> {
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(0, SAID_MAX);
  });
  return new Promise((resolve, reject) => {
    const end = (error?: TillsyncError) => {
      clearTimeout(timer);
      limit.signal.removeEventListener('abort', onAbort);
      if (error) reject(error);
      else resolve();
    };
    const cut = (error: TillsyncError) => {
      killGroup(child);
      end(error);
    };
    const onAbort = () => cut(new TillsyncError('aborted', 'Stopped while the alarm command ran.'));
    const timer = setTimeout(
      () => cut(commandFailed(`was ended, for it took longer than ${limit.timeoutMs} ms`, said)),
      limit.timeoutMs,
    );
    limit.signal.addEventListener('abort', onAbort, { once: true });
    if (limit.signal.aborted) onAbort();
    child.once('error', (cause) => end(commandFailed(whyNotStarted(cause), '', cause)));
    child.once('exit', (code, by) => {
      if (code === 0) end();
      else end(commandFailed(code === null ? `was ended by ${by}` : `ended with ${code}`, said));
    });
  });
}

/** The program of the command is named in the configuration, so it is not repeated. */
function whyNotStarted(cause: Error): string {
  const code = 'code' in cause ? cause.code : undefined;
  if (code === 'ENOENT')
    return 'cannot be started: the program is not there, or what its first line names is not';
  if (code === 'EACCES')
    return 'cannot be started: permission denied. The user of tillsync must be able to read and execute it';
  return `cannot be started: ${cause.message}`;
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended by itself.
  }
}

function commandFailed(what: string, said: string, cause?: unknown): TillsyncError {
  const words = said.trim() === '' ? '' : ` It said: ${said.trim()}`;
  return new TillsyncError('internal', `The alarm command ${what}.${words}`, {
    cause,
    retryable: true,
    hint: 'Check alarms.command with: {tillsync} alarms test',
  });
}

/**
 * Sends each message as JSON by POST, with the token as `Authorization: Bearer`; every 2xx counts as arrived. Redirects
 * are not followed. The address may hold a secret, so it is never told.
 */
export function urlReceiver(url: string, token: string | undefined, timeoutMs: number): AlarmReceiver {
  const { host } = new URL(url);
  return {
    name: 'url',
    description: `the address at ${host}`,
    async tell(report, signal) {
      // Few shops send alarms to an address, and it takes memory.
      const { Agent, request } = await import('undici');
      const agent = new Agent({ pipelining: 0 });
      const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
      try {
        const { statusCode, body } = await request(url, {
          method: 'POST',
          headers: {
            'content-type': 'application/json',
            'user-agent': `tillsync/${report.version}`,
            ...(token !== undefined && { authorization: `Bearer ${token}` }),
          },
          body: JSON.stringify(report),
          dispatcher: agent,
          signal: limit,
        });
        body.on('error', () => {});
        body.destroy();
        if (statusCode < 200 || statusCode > 299) throw urlFailed(`${host} answered ${statusCode}`);
      } catch (error) {
        if (error instanceof TillsyncError) throw error;
        if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while an alarm was sent.');
        if (limit.aborted) throw urlFailed(`${host} gave no answer within ${timeoutMs} ms`);
        // Its words may repeat the address.
        const code = error instanceof Error && 'code' in error ? String(error.code) : 'connection failed';
        throw urlFailed(`${host} cannot be reached (${code})`);
      } finally {
        void agent.destroy();
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
