import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { basename, dirname, join } from 'node:path';
import type { AskedKey } from '../../config/config-draft.ts';
import { asRoot } from '../../daemon/storage/storage-user.ts';
import { TillsyncError } from '../../domain/errors.ts';

export interface Address {
  host: string;
  port: number;
}

interface Holder {
  pid: number;
  program: string;
}

const OPTIONS = { 'webhook.listen': '--webhook-listen', 'local.listen': '--local-listen' } as const;
export type ListenKey = keyof typeof OPTIONS & AskedKey;

const PORT_MAX = 65_535;
/** A test of the same address by another program is over by then. */
const AGAIN_AFTER_MS = 100;

/**
 * Tries whether this machine lets a program listen there. Throws `usage` with who holds the port and one that is free;
 * `isOwn` says of a process whether it is the service that is to take this configuration over.
 */
export async function tryListener(
  key: ListenKey,
  address: Address,
  isOwn: (pid: number, port: number) => Promise<boolean>,
): Promise<void> {
  const { host, port } = address;
  if (port === 0) return;
  let code = await bindFault(address);
  // systemd opens the socket of callbacks as root; here it may be another user who tries.
  if (code === undefined || (code === 'EACCES' && key === 'webhook.listen')) return;
  let holder = code === 'EADDRINUSE' ? holderOf(port) : undefined;
  if (code === 'EADDRINUSE' && holder === undefined) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS));
    code = await bindFault(address);
    if (code === undefined) return;
    holder = holderOf(port);
  }
  if (holder && (await isOwn(holder.pid, port))) return;
  if (code === 'EADDRINUSE') {
    const who = holder ? ` (${holder.program}, process ${holder.pid})` : '';
    const free = `${written(host)}:${await freePort(host, port + 1, new Set())}`;
    throw new TillsyncError('usage', `Port ${port} is already used by another program${who}.`, {
      hint: `Choose another with ${OPTIONS[key]}, such as ${free}, or stop that program.`,
    });
  }
  const why = code === 'EADDRNOTAVAIL' ? `${host} is no address of this machine` : `${code}`;
  throw new TillsyncError('usage', `Nothing can listen on ${written(host)}:${port}: ${why}.`, {
    hint: `Choose another with ${OPTIONS[key]}, such as 127.0.0.1:${port}.`,
  });
}

/** The first port from `from` on that nobody listens on and no other company's file in the directory names. */
export async function freePortBeside(file: string, host: string, from: number): Promise<number> {
  const taken = new Set<number>();
  const directory = dirname(file);
  for (const name of readdirSync(directory).filter((each) => each.endsWith('.toml'))) {
    if (join(directory, name) === file) continue;
    for (const [, port] of readFileSync(join(directory, name), 'utf8').matchAll(
      /^\s*listen\s*=.*?:(\d+)/gm,
    )) {
      taken.add(Number(port));
    }
  }
  return freePort(host, from, taken);
}

async function freePort(host: string, from: number, taken: ReadonlySet<number>): Promise<number> {
  for (let port = from; port <= PORT_MAX; port++) {
    if (!taken.has(port) && (await bindFault({ host, port })) !== 'EADDRINUSE') return port;
  }
  return 0;
}

/** Node's code, or undefined when it could be listened on. */
function bindFault({ host, port }: Address): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** Who listens on a port, as far as /proc tells. */
function holderOf(port: number): Holder | undefined {
  return asRoot(() => findHolder(port));
}

function findHolder(port: number): Holder | undefined {
  const inodes = new Set(['tcp', 'tcp6'].flatMap((name) => listeningInodes(name, port)));
  if (inodes.size === 0) return undefined;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
        if (inode !== undefined && inodes.has(inode)) {
          // The name of a thread, which is in comm, says less.
          return { pid: Number(pid), program: basename(readlinkSync(`/proc/${pid}/exe`)) };
        }
      }
    } catch {
      // Gone since, or another user's.
    }
  }
  return undefined;
}

/** proc(5): local address in hex, state 0A is LISTEN, the tenth column the inode. */
function listeningInodes(table: string, port: number): string[] {
  try {
    return readFileSync(`/proc/net/${table}`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(
        ([, local = '', , state]) =>
          state === '0A' && Number.parseInt(local.split(':')[1] ?? '', 16) === port,
      )
      .flatMap((columns) => columns[9] ?? []);
  } catch {
    return [];
  }
}

function written(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
