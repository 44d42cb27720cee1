import { writeSync } from 'node:fs';

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
