import { writeSync } from 'node:fs';
import { hasCode } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { Clock } from '../core/time.ts';

const FIRST_FD = 3;

/**
 * Returns the listening socket that systemd keeps open across restarts (sd_listen_fds(3)), so that callbacks wait and
 * are not refused; undefined if there is none. Further sockets are ignored.
 */
export function inheritedSocket(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | undefined {
  // Child processes inherit the variables, although these are not meant for them.
  if (env.LISTEN_PID !== String(pid)) return undefined;
  const count = Number(env.LISTEN_FDS);
  return Number.isInteger(count) && count > 0 ? FIRST_FD : undefined;
}

/** Messages to systemd, under systemd's names (sd_notify(3)). */
interface ServiceNews {
  READY?: '1';
  STOPPING?: '1';
  WATCHDOG?: '1';
  /** Sentence for `systemctl status`. */
  STATUS?: string;
}

/** The service manager that started this process, if any. */
interface ServiceManager {
  /** Sends a message to systemd. Never throws, because a lost message must not end the daemon's work. */
  tell(news: ServiceNews): void;
  /** Maximum time between two heartbeats; undefined if nobody expects any. */
  readonly watchdogMs: number | undefined;
}

interface ServiceManagerOptions {
  env: Readonly<Record<string, string | undefined>>;
  pid: number;
  /** Writes one datagram; a test passes its own function. */
  write?: (fd: number, text: string) => void;
}

/**
 * Reads the environment of the unit and the launcher. Node has no Unix datagram sockets, so the launcher connects one
 * to `$NOTIFY_SOCKET` and passes its number in `NOTIFY_FD`. The kernel then names this process as the sender, and
 * `NotifyAccess=main` is enough.
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
  /** Returns the loops that were silent for too long. */
  stalledLoops: () => readonly string[];
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}

/** Two heartbeats may be late before systemd acts. */
const SIGNS_PER_LIMIT = 3;

/**
 * Sends systemd heartbeats while every loop sends its own. A process with a blocked event loop or dead loops stays
 * silent, and systemd restarts it. Ends with the signal, or at once if nobody expects heartbeats.
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

/** A supervised loop as the health endpoint and the watchdog see it. */
export interface SupervisedLoop {
  name: string;
  /** Monotonic time of the loop's last heartbeat. */
  readonly lastBeatMs: number;
  /** Resolves once the loop has ended after its signal. */
  ended: Promise<void>;
}

interface SupervisorOptions {
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  /** Promise for which the loops wait; if left out, they start at once. */
  begin?: Promise<void>;
}

/**
 * Runs a loop until the signal. A loop that throws or returns is restarted after a pause; it loses nothing, because
 * every loop starts from durable data. Ending at once after each start gives no heartbeat, except for a set-up fault
 * (`config-invalid`), which a new process would meet too; that is logged once.
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
