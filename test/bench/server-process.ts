import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { onCore } from './http-load.ts';

export const SECRET = 'bench-secret-0123456789abcdef0123456789abcdef';

export interface ServerProcess {
  url: string;
  /** Ends the server's standard input, so that it shuts down cleanly; a second call has no effect. */
  stop(): Promise<void>;
}

/** Starts a server, ours or a usual one, on its own core; see the program for its arguments. */
export async function startServer(
  program: string,
  ...args: string[]
): Promise<ServerProcess & { pid: number }> {
  const [command, words] = onCore(0, process.execPath, [path.join(import.meta.dirname, program), ...args]);
  const child = spawn(command, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), exit]);
  if (!Buffer.isBuffer(first[0])) throw new Error(`${program} ${args[0]} ended before it listened.`);
  return {
    url: String(first[0]).trim(),
    pid: child.pid as number,
    async stop() {
      child.stdin.end();
      await exit;
    },
  };
}

/**
 * Ports below the kernel's range for outgoing connections, because such a connection could occupy a port while its
 * server is down.
 */
const PORTS = { from: 20_000, to: 32_767 };

/** Returns a free loopback port that stays free while its server restarts. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(PORTS.from, PORTS.to);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
    } catch {
      continue;
    }
    server.close();
    await once(server, 'close');
    return port;
  }
}

const START_MS = 10_000;

/** Waits for a server that does not report when it is up. */
export async function untilListening(port: number): Promise<void> {
  for (const endMs = performance.now() + START_MS; performance.now() < endMs; ) {
    const socket = connect(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return;
    } catch {
      await sleep(5);
    } finally {
      socket.destroy();
    }
  }
  throw new Error(`Nobody listened on port ${port} within ${START_MS / 1000} s.`);
}
