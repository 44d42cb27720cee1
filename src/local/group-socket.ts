import { chmodSync, lchownSync, lstatSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../domain/errors.ts';

/** A Unix socket whose group may use the API. */
export interface GroupSocket {
  path: string;
  /** Number of the group. */
  gid: number;
}

const MODE = 0o660;
const ANSWER_WITHIN_MS = 1_000;

const cameByGroup = new WeakSet<Socket>();

/** Whether the request came by the Unix socket, which only its group can open. */
export function isByGroupSocket({ raw }: FastifyRequest): boolean {
  return cameByGroup.has(raw.socket);
}

/** Lets connections to the Unix socket into `server`. Throws `config-invalid`. */
export async function listenForGroup(server: Server, { path, gid }: GroupSocket): Promise<NetServer> {
  await removeStale(path);
  const door = await letInto(server, { path }, (socket) => cameByGroup.add(socket));
  try {
    chmodSync(path, MODE);
    if (lstatSync(path).gid !== gid) lchownSync(path, -1, gid);
  } catch (cause) {
    door.close();
    throw new TillsyncError('config-invalid', `${path} cannot be given to the group ${gid}.`, {
      cause,
      hint: 'Make the user of tillsync a member of storage.group.',
    });
  }
  return door;
}

/** A further place of `server`, whose limits hold there too. Rejects with what the system says. */
export function letInto(
  server: Server,
  place: { path: string } | { host: string; port: number },
  onSocket: (socket: Socket) => void = () => {},
): Promise<NetServer> {
  const door = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    onSocket(socket);
    server.emit('connection', socket);
  });
  return new Promise((resolve, reject) => {
    door.once('error', reject);
    door.listen(place, () => {
      door.off('error', reject);
      resolve(door);
    });
  });
}

/** Removes what a process that was killed left behind, and nothing else. */
async function removeStale(path: string): Promise<void> {
  const there = lstatSync(path, { throwIfNoEntry: false });
  if (!there) return;
  const isTaken = !there.isSocket() || (await isAnswered(path));
  if (!isTaken) return unlinkSync(path);
  const what = there.isSocket() ? 'Another program serves' : 'There is something else at';
  throw new TillsyncError('config-invalid', `${what} ${path}.`, { hint: 'Change local.socket.' });
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const end = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once('connect', () => end(true));
    socket.once('error', () => end(false));
    socket.setTimeout(ANSWER_WITHIN_MS, () => end(true));
  });
}
