import { writeSync } from 'node:fs';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';

const FIRST_FD = 3;

/**
 * The listening socket that systemd opened for this process and keeps open over restarts (sd_listen_fds(3)), so
 * that callbacks wait instead of being refused; undefined without one. Further sockets are left alone.
 */
export function inheritedSocket(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | undefined {
  // The variables pass to children, for whom they are not meant.
  if (env.LISTEN_PID !== String(pid)) return undefined;
  const count = Number(env.LISTEN_FDS);
  return Number.isInteger(count) && count > 0 ? FIRST_FD : undefined;
}

/** What systemd is told, by its own names (sd_notify(3)). */
export interface ServiceNews {
  READY?: '1';
  STOPPING?: '1';
  WATCHDOG?: '1';
  /** One sentence for `systemctl status`. */
  STATUS?: string;
}

/** The service manager that started this process, or nobody. */
export interface ServiceManager {
  /** Never throws: news that do not arrive must not end what they are about. */
  tell(news: ServiceNews): void;
  /** How often a sign of life is due at least; undefined when nobody waits for one. */
  readonly watchdogMs: number | undefined;
}

export interface ServiceManagerOptions {
  env: Readonly<Record<string, string | undefined>>;
  pid: number;
  /** Writes one datagram; the process's own file descriptors unless a test gives another. */
  write?: (fd: number, text: string) => void;
}

/**
 * Reads what the unit and the launcher left in the environment. Node has no datagram sockets of the Unix kind, so
 * the launcher connects one to `$NOTIFY_SOCKET` and hands over its number in `NOTIFY_FD`; the kernel then names
 * this process as the sender, and `NotifyAccess=main` is enough.
 */
export function serviceManager({ env, pid, write = writeDatagram }: ServiceManagerOptions): ServiceManager {
  const fd = wholeNumber(env.NOTIFY_FD);
  const watchdogUs = wholeNumber(env.WATCHDOG_USEC);
  const isOurs = env.WATCHDOG_PID === undefined || wholeNumber(env.WATCHDOG_PID) === pid;
  return {
    tell(news) {
      if (fd === undefined) return;
      const lines = Object.entries(news).map(([name, value]) => `${name}=${value.replaceAll('\n', ' ')}`);
      try {
        write(fd, lines.join('\n'));
      } catch {
        // systemd is starting anew or has gone; the next news may arrive.
      }
    },
    watchdogMs: fd !== undefined && watchdogUs && isOurs ? watchdogUs / 1000 : undefined,
  };
}

function writeDatagram(fd: number, text: string): void {
  writeSync(fd, text);
}

function wholeNumber(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

export interface WatchdogOptions {
  manager: ServiceManager;
  /** Names of the loops that have been silent for too long. */
  stalledLoops: () => readonly string[];
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

/** Two signs of life may be late before systemd acts. */
const SIGNS_PER_LIMIT = 3;

/**
 * Gives systemd its sign of life while every loop gives its own. A process whose event loop is blocked, or whose
 * loops are dead, stays silent and is started anew. Ends with the signal, or at once when nobody waits.
 */
export async function watchdogLoop(options: WatchdogOptions): Promise<void> {
  const { manager, stalledLoops, clock, log, signal } = options;
  if (manager.watchdogMs === undefined) return;
  let wasStalled = false;
  while (!signal.aborted) {
    const stalled = stalledLoops();
    if (stalled.length === 0) manager.tell({ WATCHDOG: '1' });
    else if (!wasStalled) {
      log.error({ loops: stalled }, 'loops give no sign of life; systemd will start tillsync anew');
      manager.tell({ STATUS: `No sign of life from: ${stalled.join(', ')}` });
    }
    wasStalled = stalled.length > 0;
    await clock.sleep(manager.watchdogMs / SIGNS_PER_LIMIT, signal);
  }
}

const RESTART_AFTER_MS = 5_000;

/** A loop under supervision, as the health endpoint and the watchdog see it. */
export interface SupervisedLoop {
  name: string;
  /** Monotonic time of its last sign of life. */
  readonly lastBeatMs: number;
  /** Resolves once the loop has ended after its signal. */
  ended: Promise<void>;
}

export interface SupervisorOptions {
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  /** Loops rest until then (default: at once). */
  begin?: Promise<void>;
}

/**
 * Runs a loop until the signal ends it. A loop that throws or returns by itself is started again after a rest;
 * what it was doing is safe, since every loop starts from what is durable. Ending at once after each start is no
 * sign of life, but for a fault of set-up (`config-invalid`): a new process would meet the same. It is logged once.
 */
export function supervise(
  name: string,
  run: (signal: AbortSignal, beat: () => void) => Promise<void>,
  options: SupervisorOptions,
): SupervisedLoop {
  const { clock, log, signal, begin } = options;
  let lastBeatMs = clock.monotonicMs();
  const beat = () => {
    lastBeatMs = clock.monotonicMs();
  };
  const ended = (async () => {
    await begin;
    let toldFault: string | undefined;
    while (!signal.aborted) {
      const before = { beatMs: lastBeatMs, monoMs: clock.monotonicMs() };
      let fault: string | undefined;
      try {
        await run(signal, beat);
        if (!signal.aborted) log.error({ loop: name }, 'a loop ended by itself; starting it again');
      } catch (error) {
        fault = hasCode(error, 'config-invalid') ? error.message : undefined;
        const isNew = fault === undefined || fault !== toldFault;
        if (!signal.aborted && isNew)
          log.error({ loop: name, err: error }, 'a loop failed; starting it again');
      }
      toldFault = fault;
      if (fault !== undefined) beat();
      else if (clock.monotonicMs() - before.monoMs < RESTART_AFTER_MS) lastBeatMs = before.beatMs;
      if (!signal.aborted) await clock.sleep(RESTART_AFTER_MS, signal);
    }
  })();
  return {
    name,
    get lastBeatMs() {
      return lastBeatMs;
    },
    ended,
  };
}
