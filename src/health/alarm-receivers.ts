import type { ChildProcess } from 'node:child_process';
import { basename } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import type { AlarmReceiver, AlarmReport } from './alarm-teller.ts';

export interface CommandReceiverOptions {
  /** The program and its arguments; no shell reads them. */
  command: readonly string[];
  timeoutMs: number;
  env: NodeJS.ProcessEnv;
}

/** What a program needs to find its way. All else stays here: secrets, credentials, systemd's sockets. */
const PASSED_ON = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|TILLSYNC_CONFIG)$/;
const SAID_MAX = 300;

/** Runs the command once for each message: JSON on its standard input, the same in `TILLSYNC_ALARM_…`. */
export function commandReceiver({ command, timeoutMs, env }: CommandReceiverOptions): AlarmReceiver {
  const [program = '', ...words] = command;
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
  const names = [
    'state',
    'key',
    'level',
    'message',
    'detail',
    'remedy',
    'since',
    'at',
    'shop',
    'text',
  ] as const;
  return Object.fromEntries(
    names.map((name) => [`TILLSYNC_ALARM_${name.toUpperCase()}`, report[name] ?? '']),
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

export interface UrlReceiverOptions {
  /** http or https; may hold a secret, so it is never told. */
  url: string;
  /** Sent as `Authorization: Bearer`. */
  token: string | undefined;
  timeoutMs: number;
}

/** Sends each message as JSON by POST; every 2xx counts as arrived. Redirects are not followed. */
export function urlReceiver({ url, token, timeoutMs }: UrlReceiverOptions): AlarmReceiver {
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
