import { readFileSync, readlinkSync } from 'node:fs';

/** Names the process that took a lane or a lease, and tells whether another one still lives. */
export interface Holders {
  readonly self: string;
  /** Undefined where nobody here can know: then only the end of what it holds counts. */
  isAlive(holder: string): boolean | undefined;
}

/** The numbers of processes mean something only within their PID namespace; a container has one of its own. */
const NAMESPACE = pidNamespace();

/**
 * Processes by number and start time, so that a number used again is not taken for the old one, and by their PID
 * namespace. Holders of before had none in their names and count as one's own.
 */
export const systemHolders: Holders = {
  self: `${process.pid}.${startTimeOf(process.pid) ?? ''}.${NAMESPACE}`,
  isAlive(holder) {
    const [pid, startTime, namespace = NAMESPACE] = holder.split('.');
    if (!pid || !/^[1-9]\d*$/.test(pid) || namespace !== NAMESPACE) return undefined;
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      // EPERM: it lives, as another user.
      if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return false;
    }
    const now = startTimeOf(Number(pid));
    return now === undefined || startTime === '' || now === startTime;
  },
};

/** Process number of a holder; undefined when it has none that means something here. */
export function pidOf(holder: string): number | undefined {
  const [, pid, namespace = NAMESPACE] = /^([1-9]\d*)\.\d*(?:\.(\d*))?$/.exec(holder) ?? [];
  return pid === undefined || namespace !== NAMESPACE ? undefined : Number(pid);
}

/** Its inode; empty where the system does not tell. */
function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '';
  } catch {
    return '';
  }
}

/** In clock ticks since boot; undefined where the system does not tell. */
function startTimeOf(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The program's name, in brackets, may hold spaces; the start time is the 20th field after it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}
