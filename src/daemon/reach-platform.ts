import { once } from 'node:events';
import { connect as connectPlain, isIP } from 'node:net';
import { connect as connectSecure } from 'node:tls';
import { TillsyncError } from '../domain/errors.ts';

const TIMEOUT_MS = 10_000;

/**
 * Whether something accepts connections at the base address, with a certificate that holds where it is https. No
 * request is sent, so no limit of the platform counts it. Throws `platform-unreachable`, `aborted`.
 */
export async function reachPlatform(baseUrl: string, signal: AbortSignal): Promise<void> {
  const { protocol, hostname, port } = new URL(baseUrl);
  const host = hostname.replace(/^\[|\]$/g, '');
  const isSecure = protocol === 'https:';
  const number = Number(port) || (isSecure ? 443 : 80);
  const named = isIP(host) === 0 ? { servername: host } : {};
  const socket = isSecure
    ? connectSecure({ host, port: number, ...named })
    : connectPlain({ host, port: number });
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
    await once(socket, isSecure ? 'secureConnect' : 'connect', { signal: limit });
  } catch (error) {
    if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while a connection was tried.');
    throw unreachable(`${host}:${number}`, error);
  } finally {
    socket.on('error', () => {});
    socket.destroy();
  }
}

function unreachable(address: string, cause: unknown): TillsyncError {
  const isLate = cause instanceof Error && cause.name === 'AbortError';
  const why = isLate ? 'no answer in time' : codeOf(cause);
  return new TillsyncError('platform-unreachable', `No connection to ${address}: ${why}.`, {
    cause,
    hint: hintOf(why),
  });
}

function codeOf(error: unknown): string {
  const first = error instanceof AggregateError ? error.errors[0] : error;
  return first instanceof Error && 'code' in first ? String(first.code) : String(first);
}

function hintOf(code: string): string {
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return 'The name cannot be resolved: check its spelling, and the DNS of this machine.';
  }
  if (code.includes('CERT') || code.includes('ISSUER')) {
    return "The certificate there is not accepted: check the address, and this machine's clock.";
  }
  if (code.startsWith('ERR_SSL') || code === 'EPROTO') {
    return 'What answers there does not speak https: check the address and its port.';
  }
  return 'Check the address, and the internet connection and firewall of this machine.';
}
