import { once } from 'node:events';
import { connect as connectPlain, isIP } from 'node:net';
import { connect as connectSecure } from 'node:tls';
import { TillsyncError } from '../domain/errors.ts';
import { addressOf, networkFault } from '../platform/network-fault.ts';

const TIMEOUT_MS = 10_000;

/**
 * Whether something accepts connections at the base address, with a certificate that holds where it is https. No
 * request is sent, so no limit of the platform counts it. Throws `platform-unreachable`, `aborted`.
 */
export async function reachPlatform(baseUrl: string, signal: AbortSignal): Promise<void> {
  const { isTls, ...to } = addressOf(baseUrl);
  const named = isIP(to.host) === 0 ? { servername: to.host } : {};
  const socket = isTls ? connectSecure({ ...to, ...named }) : connectPlain(to);
  // What comes after the verdict is of no interest.
  socket.on('error', () => {});
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  try {
    await once(socket, isTls ? 'secureConnect' : 'connect', { signal: AbortSignal.any([signal, limit]) });
  } catch (error) {
    if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while a connection was tried.');
    throw networkFault(limit.aborted ? timedOut() : error, to);
  } finally {
    socket.destroy();
  }
}

function timedOut(): Error {
  return Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' });
}
