import { readFileSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { getProxyForUrl } from 'proxy-from-env';
import type { Agent, Dispatcher } from 'undici';
import { ACCEPTED_CODINGS, codingOf, DecodeError, decoded } from '../core/content-coding.ts';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { Endpoint } from './platform.ts';

export interface Address {
  host: string;
  port: number;
}

/** Settings for connections to the platform. */
export interface PlatformWay {
  baseUrl: string;
  /** Address of a proxy. If left out or empty, HTTPS_PROXY and NO_PROXY of the environment apply. */
  proxy?: string | undefined;
  /** PEM file with further trusted certificate authorities; left out or empty if there are none. */
  caFile?: string | undefined;
}

/**
 * Returns the address of the proxy; undefined if there is none. It may contain a password, so it must never be shown.
 */
export function proxyOf({ baseUrl, proxy }: PlatformWay): string | undefined {
  return proxy || getProxyForUrl(baseUrl) || undefined;
}

/**
 * Returns host and port of a proxy address, without its password. Throws `config-invalid` if the address is invalid.
 */
export function proxyAddress(proxy: string): Address {
  if (!URL.canParse(proxy)) {
    throw new TillsyncError('config-invalid', 'The address of the proxy is none.', {
      hint: 'Correct platform.proxy, or HTTPS_PROXY in the environment: it has a scheme, a host and a port.',
    });
  }
  const { protocol, hostname, port } = new URL(proxy);
  return {
    host: hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(port) || (protocol === 'https:' ? 443 : 80),
  };
}

/**
 * Returns the certificate authorities that a connection trusts: the process's own and those of `caFile`; undefined
 * without `caFile`. Throws `config-invalid` if the file is unusable.
 */
export function trustOf({ caFile = '' }: PlatformWay): SecureContext | undefined {
  if (caFile === '') return undefined;
  try {
    return createSecureContext({ ca: [...getCACertificates('default'), readFileSync(caFile, 'utf8')] });
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'no PEM';
    throw new TillsyncError('config-invalid', `platform.ca_file, ${caFile}, cannot be used (${code}).`, {
      cause,
      hint: 'Name a PEM file that the user of tillsync can read.',
    });
  }
}

const ONLINE =
  'Check the internet connection and the firewall of this machine; tillsync tries again by itself.';
const CLOCK = "Check this machine's clock, and platform.base_url.";
const SPELLING = 'Check the address and its port.';
const PROXY = 'Check platform.proxy, or HTTPS_PROXY in the environment, and ask who looks after the proxy.';

type Fault = [fault: string, hint: string];
const NO_SUCH_NAME: Fault = [
  'the name {host} was not found',
  'Check the spelling of the address, and the DNS of this machine.',
];
const SILENT: Fault = ['{host} did not answer on port {port}', ONLINE];
const UNTRUSTED: Fault = ['the certificate of {host} is signed by nobody this machine trusts', CLOCK];

/** Message and remedy for each error code. Every code except ETIMEDOUT occurs only before a connection exists. */
const FAULTS: Record<string, Fault> = {
  ENOTFOUND: NO_SUCH_NAME,
  EAI_AGAIN: NO_SUCH_NAME,
  ECONNREFUSED: ['{host} refuses connections on port {port}', SPELLING],
  EHOSTUNREACH: ['there is no way through the network to {host}', ONLINE],
  ENETUNREACH: ['this machine is not connected to a network that leads to {host}', ONLINE],
  ETIMEDOUT: SILENT,
  UND_ERR_CONNECT_TIMEOUT: SILENT,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: ['the certificate of {host} has expired', CLOCK],
  CERT_NOT_YET_VALID: ['the certificate of {host} is not valid yet', CLOCK],
  ERR_TLS_CERT_ALTNAME_INVALID: ['the certificate there is not one of {host}', CLOCK],
};
const NOT_HTTPS = /^ERR_SSL|^EPROTO$/;
/** Codes of errors while connecting. With a proxy they are about the proxy; other errors are about the platform. */
const OF_THE_CONNECTION =
  /^(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|UND_ERR_CONNECT_TIMEOUT)$/;
/** undici's error code if a proxy does not answer CONNECT with 200. */
const BY_THE_PROXY = 'UND_ERR_ABORTED';

/** Returns an error of undici or of the system as `platform-unreachable`. */
export function networkFault(error: unknown, platform: Address, proxy?: Address): TillsyncError {
  const code = codeOf(error);
  if (proxy && code === BY_THE_PROXY) {
    const { host, port } = proxy;
    const message = `Cannot reach the platform: the proxy ${host}:${port} does not let it through to ${platform.host}.`;
    return new TillsyncError('platform-unreachable', message, { cause: error, hint: PROXY });
  }
  const isOfProxy = proxy !== undefined && OF_THE_CONNECTION.test(code ?? '');
  const address = isOfProxy ? proxy : platform;
  const [fault, ofPlatform] = sentenceOf(code);
  const hint = isOfProxy ? PROXY : ofPlatform;
  const told = fault.replace('{host}', address.host).replace('{port}', String(address.port));
  const ending = code === undefined ? '' : ` (${code})`;
  return new TillsyncError('platform-unreachable', `Cannot reach the platform: ${told}${ending}.`, {
    cause: error,
    hint,
  });
}

/** Returns the error for an answer that was not complete within the time limit of a call. */
export function noAnswerWithin(timeoutMs: number): TillsyncError {
  return new TillsyncError(
    'platform-unreachable',
    `The platform gave no whole answer within ${timeoutMs / 1000} s.`,
    { hint: ONLINE },
  );
}

/** Whether a failed request certainly never left this machine, so that the platform cannot have acted on it. */
export function neverSent(error: unknown): boolean {
  const cause = error instanceof TillsyncError ? error.cause : error;
  const causes = cause instanceof AggregateError ? cause.errors : [cause];
  const isBeforeSending = (code = '') => code !== 'ETIMEDOUT' && Object.hasOwn(FAULTS, code);
  return causes.length > 0 && causes.every((each) => isBeforeSending(codeOf(each)));
}

/** Returns host and port of a URL such as `https://api.example.com/v1`. */
export function addressOf(baseUrl: string): Address & { isTls: boolean } {
  const { protocol, hostname, port } = new URL(baseUrl);
  const isTls = protocol === 'https:';
  return { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port) || (isTls ? 443 : 80), isTls };
}

function sentenceOf(code = ''): Fault {
  const known = Object.hasOwn(FAULTS, code) ? FAULTS[code] : undefined;
  if (known) return known;
  if (code.startsWith('HPE_')) return ['what answers at {host} on port {port} does not speak http', SPELLING];
  if (NOT_HTTPS.test(code)) return ['what answers at {host} on port {port} does not speak https', SPELLING];
  return ['the connection to {host} broke before the answer was whole', ONLINE];
}

function codeOf(error: unknown): string | undefined {
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** Sends requests to the platform. Tests and simulations use a transport without a network. */
export interface Transport {
  /**
   * Sends a request once and reads the whole answer, decoded. Throws `platform-unreachable` if the answer is not
   * complete in time, `platform-garbled` if it is larger than `bodyMaxBytes` or cannot be decoded, and `aborted` at the
   * signal. An answer with a status from 400 on that fails so has an empty body, because its status says enough.
   */
  send(request: TransportRequest): Promise<TransportAnswer>;
  close(): Promise<void>;
}

interface TransportRequest {
  /** Endpoint that metrics show. It does not change the request. */
  endpoint?: Endpoint;
  method: string;
  /** Path with its query, relative to the base address. */
  path: string;
  headers: Record<string, string>;
  body?: string;
  /** Time limit from the start of the connection to the last byte of the answer. If left out, there is no limit. */
  timeoutMs?: number;
  bodyMaxBytes: number;
  signal?: AbortSignal;
  /**
   * True to use a new connection. If a server is just closing a kept-alive connection when a request is sent on it, it
   * is unknown whether the request arrived.
   */
  freshConnection?: boolean;
}

export interface TransportAnswer {
  status: number;
  /** Headers with names in lower case. */
  headers: Record<string, string>;
  /** The body without its content coding. */
  bytes: Uint8Array;
}

/**
 * An answer, with the secrets that were sent in its request. Messages about the answer must not contain these secrets.
 */
export interface CallAnswer extends TransportAnswer {
  secrets: readonly string[];
}

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
/** Size of the first buffer if the answer has no Content-Length. */
const FIRST_BYTES = 65_536;
const CONNECTIONS = 8;

/** Creates a transport for HTTP/1.1, with undici agents of its own. */
export function createHttpTransport(
  options: PlatformWay & { userAgent: string; clock: Clock; connectTimeoutMs?: number },
): Transport {
  const { userAgent } = options;
  const base = options.baseUrl.replace(/\/+$/, '');
  const address = addressOf(base);
  const proxy = proxyOf(options);
  let agents: { kept: Dispatcher; fresh: Dispatcher } | undefined;
  /** undici is loaded for the first call, because a service should open its ports first. */
  const madeAgents = ({ Agent, ProxyAgent }: Pick<typeof import('undici'), 'Agent' | 'ProxyAgent'>) => {
    const timeout = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    const secureContext = trustOf(options);
    const connect = { timeout, ...(secureContext && { secureContext }) };
    // undici's own timeouts are inexact, so only the total timeout below is used.
    const common = { connect, headersTimeout: 0, bodyTimeout: 0, allowH2: false };
    const agent = (more: Agent.Options) =>
      proxy === undefined
        ? new Agent({ ...common, ...more })
        : new ProxyAgent({
            ...common,
            ...more,
            uri: proxy,
            headers: { 'user-agent': userAgent },
            requestTls: connect,
            proxyTls: connect,
          });
    return {
      kept: agent({ connections: CONNECTIONS, keepAliveTimeout: KEEP_ALIVE_MS }),
      fresh: agent({ pipelining: 0 }),
    };
  };
  return {
    async send(wanted) {
      const limit = timeLimit(options.clock, wanted);
      try {
        const undici = await import('undici');
        agents ??= madeAgents(undici);
        const answer = await undici.request(base + wanted.path, {
          method: wanted.method as Dispatcher.HttpMethod,
          headers: { 'user-agent': userAgent, 'accept-encoding': ACCEPTED_CODINGS, ...wanted.headers },
          body: wanted.body ?? null,
          dispatcher: wanted.freshConnection ? agents.fresh : agents.kept,
          signal: limit.signal,
        });
        const status = answer.statusCode;
        const headers = flattened(answer.headers);
        try {
          return { status, headers, bytes: await readBody(answer.body, headers, wanted.bodyMaxBytes) };
        } catch (error) {
          if (status < 400 || wanted.signal?.aborted) throw error;
          return { status, headers, bytes: new Uint8Array() };
        }
      } catch (error) {
        throw error instanceof TillsyncError
          ? error
          : (limit.reason() ??
              networkFault(error, address, proxy === undefined ? undefined : proxyAddress(proxy)));
      } finally {
        limit.end();
      }
    },
    async close() {
      await Promise.all([agents?.kept.destroy(), agents?.fresh.destroy()]);
    },
  };
}

/** Combines the caller's signal and the time limit into one signal, and says which of them ended the request. */
function timeLimit(clock: Clock, { timeoutMs, signal }: TransportRequest) {
  const ended = new AbortController();
  const cut = new AbortController();
  let reason: TillsyncError | undefined;
  const stop = (why: () => TillsyncError) => {
    if (ended.signal.aborted) return;
    reason ??= why();
    cut.abort();
  };
  const onAbort = () => stop(() => new TillsyncError('aborted', 'Stopped while a request was under way.'));
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  if (timeoutMs !== undefined) {
    void clock.sleep(timeoutMs, ended.signal).then(() => stop(() => noAnswerWithin(timeoutMs)));
  }
  return {
    signal: cut.signal,
    reason: () => reason,
    end() {
      ended.abort();
      signal?.removeEventListener('abort', onAbort);
    },
  };
}

/** Decodes a body into one buffer of the announced length, so that a large answer is in memory only once. */
async function readBody(
  body: Readable,
  headers: TransportAnswer['headers'],
  maxBytes: number,
): Promise<Uint8Array> {
  const header = headers['content-encoding'];
  const coding = header === undefined ? null : codingOf(header);
  if (coding === undefined) {
    // Without this listener, undici's error about the unread rest would end the process.
    body.on('error', () => {}).destroy();
    throw new TillsyncError(
      'platform-garbled',
      `The platform's answer is encoded as ${header?.slice(0, 40)}.`,
      {
        hint: `tillsync asks for ${ACCEPTED_CODINGS} alone. A proxy may stand in between; check platform.base_url from this machine.`,
      },
    );
  }
  if (coding === null) return gather(body, Number(headers['content-length']), maxBytes);
  try {
    return await gather(decoded(body, coding, maxBytes), 0, maxBytes);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    if (error.reason === 'too-large') throw tooLarge(maxBytes);
    throw new TillsyncError(
      'platform-garbled',
      `The platform's answer says that it is encoded as ${coding}, and it is not.`,
      { cause: error },
    );
  }
}

function tooLarge(maxBytes: number): TillsyncError {
  return new TillsyncError('platform-garbled', `The platform's answer is larger than ${maxBytes} bytes.`);
}

/** Size of a part of a body that is gathered before callbacks get their turn. */
const TURN_BYTES = 256 * 1024;

/** Gathers a body of at most `maxBytes`. `saidBytes` is the size that the header announces, if any. */
async function gather(
  body: AsyncIterable<Uint8Array>,
  saidBytes: number,
  maxBytes: number,
): Promise<Uint8Array> {
  const isUsable = Number.isSafeInteger(saidBytes) && saidBytes > 0 && saidBytes <= maxBytes;
  let whole = Buffer.allocUnsafeSlow(isUsable ? saidBytes : FIRST_BYTES);
  let size = 0;
  let restedAt = 0;
  for await (const chunk of body) {
    const end = size + chunk.length;
    // An error in the loop closes the stream and its connection.
    if (end > maxBytes) throw tooLarge(maxBytes);
    if (end > whole.length) {
      const wider = Buffer.allocUnsafeSlow(Math.max(end, 2 * whole.length));
      wider.set(whole.subarray(0, size));
      whole = wider;
    }
    whole.set(chunk, size);
    size = end;
    if (size - restedAt < TURN_BYTES) continue;
    restedAt = size;
    await setImmediate();
  }
  return size === whole.length ? whole : whole.subarray(0, size);
}

function flattened(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  const flat: TransportAnswer['headers'] = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) flat[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
  }
  return flat;
}
