import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { refuseOld } from '../link/server-look.ts';

/** Where nats-server may be found. Debian installs it in a directory outside a user's PATH. */
const PROGRAMS = ['nats-server', '/usr/sbin/nats-server', '/usr/local/sbin/nats-server'];
const START_WITHIN_MS = 10_000;

/**
 * Returns the path of this machine's nats-server. Throws `not-found` if there is none, `config-invalid` if it is too
 * old.
 */
export function findNatsServer(programs: readonly string[] = PROGRAMS): string {
  const hint =
    "Debian 13 has a nats-server that is new enough: sudo apt-get install nats-server. Debian 12 can take Debian 13's package.";
  let tooOld: TillsyncError | undefined;
  for (const program of programs) {
    const { status, stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' });
    const version = /v?(\d+\.\d+\.\d+)/.exec(stdout ?? '')?.[1];
    if (status !== 0 || version === undefined) continue;
    try {
      refuseOld(program, version);
      return program;
    } catch (error) {
      const { code, message } = asTillsyncError(error);
      tooOld ??= new TillsyncError(code, message, { hint });
    }
  }
  throw (
    tooOld ??
    new TillsyncError('not-found', 'Branches need a nats-server, and there is none on this machine.', {
      hint,
    })
  );
}

interface RunningServer {
  close(): Promise<void>;
}

/** Starts nats-server with the configuration that the hub wrote. Throws `not-found` when it does not start. */
export async function startNatsServer(
  program: string,
  { file, port, clock }: { file: string; port: number; clock: Clock },
): Promise<RunningServer> {
  const child: ChildProcess = spawn(program, ['-c', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  child.stderr?.on('data', (part) => {
    said = (said + part).slice(-2_000);
  });
  const closed = once(child, 'close');
  // Kills the server if this process exits without `close`.
  const kill = () => child.kill('SIGKILL');
  process.once('exit', kill);
  const close = async () => {
    process.off('exit', kill);
    child.kill('SIGTERM');
    await closed;
  };
  const endMs = clock.monotonicMs() + START_WITHIN_MS;
  while (!(await listens(port))) {
    if (child.exitCode === null && clock.monotonicMs() < endMs) await clock.sleep(50);
    else {
      if (child.exitCode === null) await close();
      throw new TillsyncError('not-found', `The nats-server does not start. It says: ${said.trim()}`);
    }
  }
  return { close };
}

async function listens(port: number): Promise<boolean> {
  const socket = createConnection({ host: '127.0.0.1', port });
  const isThere = await once(socket, 'connect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isThere;
}

/** A proxy for the connection from one branch to nats-server. `cut` disconnects the branch until `mend`. */
export class Line {
  readonly #server: Server;
  readonly #open = new Set<Socket>();
  #isCut = false;

  constructor(port: number) {
    this.#server = createServer((near) => {
      if (this.#isCut) {
        near.destroy();
        return;
      }
      const far = createConnection({ host: '127.0.0.1', port });
      for (const [socket, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#open.add(socket);
        socket.on('error', () => other.destroy());
        socket.on('close', () => {
          this.#open.delete(socket);
          other.destroy();
        });
        socket.pipe(other);
      }
    });
  }

  async listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  cut(): void {
    this.#isCut = true;
    for (const socket of this.#open) socket.destroy();
  }

  mend(): void {
    this.#isCut = false;
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
