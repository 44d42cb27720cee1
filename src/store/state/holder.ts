import { readFileSync } from 'node:fs';

/** Names the process that took a lane or a lease, and tells whether another one still lives. */
export interface Holders {
  readonly self: string;
  /** False only when it is certain that the process has ended. */
  isAlive(holder: string): boolean;
}

/** The machine's processes, by number and start time, so that a number used again is not taken for the old one. */
export const systemHolders: Holders = {
  self: `${process.pid}.${startTimeOf(process.pid) ?? ''}`,
  isAlive(holder) {
    const [pid, startTime] = holder.split('.');
    if (!pid || !/^[1-9]\d*$/.test(pid)) return true;
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

/** Process number of a holder; undefined when it is none of this kind. */
export function pidOf(holder: string): number | undefined {
  const pid = /^([1-9]\d*)\./.exec(holder)?.[1];
  return pid === undefined ? undefined : Number(pid);
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
