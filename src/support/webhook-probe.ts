import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectSecure } from 'node:tls';
import { Agent, request } from 'undici';
import { userAgent } from '../app/installation.ts';
import type { Config } from '../config/config-type.ts';
import { TillsyncError } from '../core/errors.ts';
import { isOwnListener } from '../core/own-listener.ts';
import { PROBE_HEADER, PROBE_SECRET } from '../orders/receiving/callback-log.ts';
import {
  type Address,
  addressOf,
  networkFault,
  type PlatformWay,
  proxyAddress,
  proxyOf,
  trustOf,
} from '../platform/transport.ts';

/** Result of one try of an address. */
export interface ProbeResult {
  what: 'local' | 'public';
  url: string;
  ok: boolean;
  /** One sentence for a person. */
  message: string;
}

const TIMEOUT_MS = 10_000;

export interface ProbeOptions {
  config: Config;
  /** The secret that callbacks carry now. */
  secret: string | undefined;
  signal: AbortSignal;
}

/**
 * Tries the receiver as the platform would, without a trace in the mirror: a wrong secret must be refused (401), and
 * the right one accepted, so that only the too large body is refused (413).
 */
export async function probeWebhook({ config, secret, signal }: ProbeOptions): Promise<ProbeResult[]> {
  const { host, port, path, tlsCertFile, callbackUrl, bodyLimitBytes } = config.webhook;
  const local = `${tlsCertFile === '' ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}${path}`;
  // The certificate is not checked, because it names the public address and the probe uses the loopback address.
  const agent = new Agent({ connect: { rejectUnauthorized: false } });
  const open = new Agent();
  try {
    const results: ProbeResult[] = [];
    const refused = await statusOf(local, PROBE_SECRET, '{}', agent, signal);
    results.push(judgeWrong('local', local, refused));
    if (refused === 401 && secret !== undefined && isOwnListener(port, config.storage.directory)) {
      const large = ' '.repeat(bodyLimitBytes + 1);
      results.push(judgeRight(local, await statusOf(local, secret, large, agent, signal)));
    }
    if (callbackUrl !== '') {
      const reached = await statusOf(callbackUrl, PROBE_SECRET, '{}', open, signal);
      results.push(judgeWrong('public', callbackUrl, reached));
    }
    return results;
  } finally {
    await Promise.all([agent.destroy(), open.destroy()]);
  }
}

async function statusOf(
  url: string,
  secret: string,
  body: string,
  dispatcher: Agent,
  signal: AbortSignal,
): Promise<number | string> {
  try {
    const answer = await request(url, {
      method: 'POST',
      headers: {
        'user-agent': userAgent(),
        'content-type': 'application/json',
        'x-webhook-secret': secret,
        [PROBE_HEADER]: '1',
      },
      body,
      dispatcher,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    });
    await answer.body.dump();
    return answer.statusCode;
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : 'no answer in time';
  }
}

function judgeWrong(what: 'local' | 'public', url: string, status: number | string): ProbeResult {
  if (status === 401) return { what, url, ok: true, message: 'reached, and a wrong secret is refused' };
  if (typeof status === 'string') {
    const why = what === 'local' ? 'is tillsync running?' : 'check name, firewall and proxy';
    return { what, url, ok: false, message: `not reached (${status}); ${why}` };
  }
  const hint = status < 300 ? 'something else answers there' : 'check the path and the proxy in front';
  return { what, url, ok: false, message: `answered ${status} where 401 was due; ${hint}` };
}

function judgeRight(url: string, status: number | string): ProbeResult {
  if (status === 413) return { what: 'local', url, ok: true, message: 'the secret in use is accepted' };
  if (status === 401) {
    const message = 'the secret in use is refused; restart tillsync if it was handed in anew';
    return { what: 'local', url, ok: false, message };
  }
  return { what: 'local', url, ok: false, message: `answered ${status} where 413 was due` };
}

/**
 * Checks that the base address accepts connections, with a valid certificate for https. It sends no request, so no
 * limit of the platform counts it. Throws `platform-unreachable`, `aborted`.
 */
export async function reachPlatform(way: PlatformWay, signal: AbortSignal): Promise<void> {
  const { isTls, ...to } = addressOf(way.baseUrl);
  const named = isIP(to.host) === 0 ? { servername: to.host } : {};
  const secureContext = isTls ? trustOf(way) : undefined;
  const trusted = secureContext ? { secureContext } : {};
  const proxy = proxyOf(way);
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  const stop = AbortSignal.any([signal, limit]);
  let socket: Socket | undefined;
  try {
    if (proxy !== undefined && isTls) socket = await throughProxy(proxy, to, stop);
    const tunnel = socket ? { socket } : {};
    // Requests without TLS are sent to the proxy itself, so the connection to the proxy is tried.
    const nearest = proxy === undefined ? to : proxyAddress(proxy);
    socket = isTls ? connectSecure({ ...to, ...named, ...trusted, ...tunnel }) : connectPlain(nearest);
    // Without this listener, an error after the result would end the process.
    socket.on('error', () => {});
    await once(socket, isTls ? 'secureConnect' : 'connect', { signal: stop });
  } catch (error) {
    if (signal.aborted) throw new TillsyncError('aborted', 'Stopped while a connection was tried.');
    if (error instanceof TillsyncError) throw error;
    throw networkFault(
      limit.aborted ? timedOut() : error,
      to,
      proxy === undefined ? undefined : proxyAddress(proxy),
    );
  } finally {
    socket?.destroy();
  }
}

/** Opens a tunnel to the platform. Throws the system's error, or undici's if the proxy refuses. */
async function throughProxy(proxy: string, to: Address, signal: AbortSignal): Promise<Socket> {
  const { protocol, username, password } = new URL(proxy);
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  const host = to.host.includes(':') ? `[${to.host}]` : to.host;
  const asked = (protocol === 'https:' ? https : http).request({
    ...proxyAddress(proxy),
    method: 'CONNECT',
    path: `${host}:${to.port}`,
    headers: {
      host: `${host}:${to.port}`,
      'user-agent': userAgent(),
      ...(username !== '' && {
        'proxy-authorization': `Basic ${Buffer.from(credentials).toString('base64')}`,
      }),
    },
    signal,
  });
  asked.end();
  const [answer, socket] = (await once(asked, 'connect')) as [http.IncomingMessage, Socket];
  socket.on('error', () => {});
  if (answer.statusCode === 200) return socket;
  socket.destroy();
  throw Object.assign(new Error(), { code: 'UND_ERR_ABORTED' });
}

function timedOut(): Error {
  return Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' });
}
