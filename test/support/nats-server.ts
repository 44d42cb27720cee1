import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import path from 'node:path';
import { systemClock } from '../../src/core/system-clock.ts';

const PROGRAM = ['/usr/sbin/nats-server', '/usr/local/bin/nats-server', '/usr/bin/nats-server'].find(
  (program) => spawnSync(program, ['--version']).status === 0,
);

const UNIT = path.resolve(import.meta.dirname, '../../systemd/tillsync-nats.service');
/** Environment variables that the systemd unit of nats-server sets. */
const ENVIRONMENT = Object.fromEntries(
  [...readFileSync(UNIT, 'utf8').matchAll(/^Environment=(\w+)=(\S+)$/gm)].map(([, name, value]) => [
    name,
    value,
  ]),
);

/**
 * Whether a nats-server is installed (apt-get install nats-server); tests that need one are skipped otherwise. tillsync
 * needs version 2.10.27 or later.
 */
export const hasNatsServer = PROGRAM !== undefined;

export interface NatsServer {
  pid: number;
  log(): string;
  /**
   * Sends a signal. On SIGHUP the server reloads its configuration; on SIGUSR2 it disconnects its clients one by one,
   * then ends.
   */
  signal(name: NodeJS.Signals): void;
  ended: Promise<unknown>;
  kill(): Promise<void>;
}

/** Starts nats-server with the hub's configuration; resolves when it listens. */
export async function startNatsServer(file: string, port: number): Promise<NatsServer> {
  const child: ChildProcess = spawn(PROGRAM ?? 'nats-server', ['-c', file], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...ENVIRONMENT },
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk) => {
      text += chunk;
    });
  }
  const closed = once(child, 'close');
  for (let tries = 0; !(await listens(port)); tries++) {
    if (child.exitCode !== null || tries > 300) throw new Error(`nats-server does not start:\n${text}`);
    await systemClock.sleep(50);
  }
  return {
    pid: child.pid ?? 0,
    log: () => text,
    signal: (name) => void child.kill(name),
    ended: closed,
    async kill() {
      child.kill('SIGKILL');
      await closed;
    },
  };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: '127.0.0.1', port });
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
