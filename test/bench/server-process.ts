import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { onCore } from './http-load.ts';

export const SECRET = 'bench-secret-0123456789abcdef0123456789abcdef';

export interface ServerProcess {
  url: string;
  /** Processor time it used so far; NaN where /proc does not tell. */
  cpuMs(): number;
  /** Ends it in order; a second call changes nothing. */
  stop(): Promise<void>;
}

/** One of the compared servers (receiver-server.ts) on a core of its own. */
export async function startServer(mode: string, directory: string): Promise<ServerProcess> {
  const program = path.join(import.meta.dirname, 'receiver-server.ts');
  const [command, args] = onCore(0, process.execPath, [program, mode, directory, SECRET]);
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), exit]);
  if (!Buffer.isBuffer(first[0])) throw new Error(`The ${mode} server ended before it listened.`);
  return {
    url: String(first[0]).trim(),
    cpuMs: () => cpuMsOf(child.pid),
    async stop() {
      child.stdin.end();
      await exit;
    },
  };
}

const CLOCK_TICK_MS = 10;

function cpuMsOf(pid: number | undefined): number {
  try {
    // The program's name, in parentheses, may hold spaces.
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
    return (Number(stat[11]) + Number(stat[12])) * CLOCK_TICK_MS;
  } catch {
    return Number.NaN;
  }
}
