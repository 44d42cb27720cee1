import { readFileSync, statSync } from 'node:fs';

/** Matches a line of `/proc/net/tcp` of a listening socket (state 0A), with its local port and its user. */
const LISTENER = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A \S+ \S+ \S+\s+(\d+)/gm;

/**
 * Returns whether tillsync's user, to whom the storage directory belongs, or root listens on a port of this machine, and
 * no other user; undefined if nobody does. Any user can take the port while tillsync is off, so secrets are sent only to
 * such a listener. Returns false if the system does not report the users.
 */
export function isOwnListener(port: number, storage: string): boolean | undefined {
  try {
    const own = new Set([0, statSync(storage).uid]);
    const owners = ['/proc/net/tcp', '/proc/net/tcp6']
      .flatMap((file) => [...tableOf(file).matchAll(LISTENER)])
      .filter(([, hex = '']) => Number.parseInt(hex, 16) === port)
      .map(([, , uid]) => Number(uid));
    return owners.length === 0 ? undefined : owners.every((uid) => own.has(uid));
  } catch {
    return false;
  }
}

/** Returns a table of sockets. A machine without IPv6 has no table for it. */
function tableOf(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch (error) {
    if (file.endsWith('6')) return '';
    throw error;
  }
}
