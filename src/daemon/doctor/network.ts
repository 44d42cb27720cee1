import { once } from 'node:events';
import { connect as connectTcp, isIP } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { asTillsyncError } from '../../domain/errors.ts';
import { networkFault } from '../../platform/network-fault.ts';
import { type Check, failed, type Outcome, well } from './check.ts';

const TIMEOUT_MS = 10_000;

/** Whether the platform's address lets itself be connected to. Nothing is asked of it, so no limit is touched. */
export function networkCheck(baseUrl: string, signal: AbortSignal): Check {
  return { id: 'platform.network', run: () => tryToConnect(baseUrl, signal) };
}

async function tryToConnect(baseUrl: string, signal: AbortSignal): Promise<Outcome> {
  const { protocol, hostname, port } = new URL(baseUrl);
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  const isTls = protocol === 'https:';
  const to = { host, port: Number(port) || (isTls ? 443 : 80) };
  const facts = { ...to, tls: isTls };
  const startMs = performance.now();
  const socket = isTls
    ? connectTls({ ...to, ...(isIP(host) === 0 && { servername: host }) })
    : connectTcp(to);
  // What comes after the verdict is of no interest.
  socket.on('error', () => {});
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  try {
    await once(socket, isTls ? 'secureConnect' : 'connect', { signal: AbortSignal.any([signal, limit]) });
    const tookMs = Math.round(performance.now() - startMs);
    return well(`${to.host}:${to.port} takes connections (${tookMs} ms).`, { ...facts, tookMs });
  } catch (error) {
    const cause = limit.aborted
      ? Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' })
      : error;
    const { hint = '' } = asTillsyncError(networkFault(cause));
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown fault';
    const message = `The platform is not reached at ${to.host}:${to.port} (${code}).`;
    return failed(message, hint, { ...facts, code });
  } finally {
    socket.destroy();
  }
}
