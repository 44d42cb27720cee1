import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { onCore } from './http-load.ts';

export const SECRET = 'bench-secret-0123456789abcdef0123456789abcdef';

export interface ServerProcess {
  url: string;
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
    async stop() {
      child.stdin.end();
      await exit;
    },
  };
}
