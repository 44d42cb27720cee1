import { writeSync } from 'node:fs';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';

const FIRST_FD = 3;

/**
 * Returns the listening socket that systemd keeps open across restarts (sd_listen_fds(3)), so that callbacks wait
 * instead of being refused; undefined if there is none. Only the first socket is used.
 */
export function inheritedSocket(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | undefined {
  // A process that inherited the variables of its parent must not use them, because they are meant for the parent.
  if (env.LISTEN_PID !== String(pid)) return undefined;
  const count = Number(env.LISTEN_FDS);
  return Number.isInteger(count) && count > 0 ? FIRST_FD : undefined;
}

/** Messages to systemd, under systemd's names (sd_notify(3)). */
interface ServiceNews {
  READY?: '1';
  STOPPING?: '1';
  WATCHDOG?: '1';
  /** Sentence that `systemctl status` shows. */
  STATUS?: string;
}

/** The service manager that started this process. */
interface ServiceManager {
  /** Sends a message to systemd. Never throws, because a lost message must not stop the daemon. */
  tell(news: ServiceNews): void;
  /** Longest time between two heartbeats; undefined if nobody expects heartbeats. */
  readonly watchdogMs: number | undefined;
}

interface ServiceManagerOptions {
  env: Readonly<Record<string, string | undefined>>;
  pid: number;
  /** Writes one datagram; replaced in tests. */
  write?: (fd: number, text: string) => void;
}

/**
 * Reads the environment of the systemd unit and of the launcher. Node has no Unix datagram sockets, so the launcher
 * connects one to `$NOTIFY_SOCKET` and passes its descriptor in `NOTIFY_FD`. The kernel names this process as the
 * sender, so `NotifyAccess=main` is enough.
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
        // systemd restarts or has ended; the next message may arrive.
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

interface WatchdogOptions {
  manager: ServiceManager;
  /** Returns the names of loops that reported nothing for too long. */
  stalledLoops: () => readonly string[];
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

/** Number of heartbeats that are sent within the watchdog's limit, so that two may be late before systemd acts. */
const SIGNS_PER_LIMIT = 3;

/**
 * Sends heartbeats to systemd while every loop reports that it runs. A process with a blocked event loop or a dead
 * loop sends none, so systemd restarts it. Ends with the signal, or at once if nobody expects heartbeats.
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

/** State of a supervised loop, for the health endpoint and the watchdog. */
export interface SupervisedLoop {
  name: string;
  /** Monotonic time at which the loop last reported that it runs. */
  readonly lastBeatMs: number;
  /** Resolves when the loop has ended after its signal. */
  ended: Promise<void>;
}

interface SupervisorOptions {
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  /** The loops start when this promise resolves; if left out, they start at once. */
  begin?: Promise<void>;
}

/**
 * Runs a loop until the signal aborts. A loop that throws or returns is restarted after a pause, and loses nothing,
 * because every loop starts from durable data.
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
      // The heartbeat of a run that ended at once is not accepted, so that the watchdog restarts the process. After
      // `config-invalid` it is accepted, because a new process would meet and log the same fault again.
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
