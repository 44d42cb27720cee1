import type { Agent, Dispatcher } from 'undici';
import type { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { Endpoint } from './platform.ts';
import { envelopeAnswer } from './schemas.ts';
import { type Address, type PlatformWay, proxyAddress, proxyOf, trustOf } from './way.ts';

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

/** Message and remedy for each code. All except ETIMEDOUT occur only before a connection is made. */
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
/**
 * Errors of the connection itself. With a proxy they concern the proxy; other errors concern the platform behind it.
 */
const OF_THE_CONNECTION =
  /^(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|UND_ERR_CONNECT_TIMEOUT)$/;
/** undici's code for a proxy that answers CONNECT with anything but 200. */
const BY_THE_PROXY = 'UND_ERR_ABORTED';

/** Turns an error of undici or the system into `platform-unreachable`, with the error as its cause. */
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

/** Whether a failed request certainly never left this machine, so that it changed nothing on the platform. */
export function neverSent(error: unknown): boolean {
  const cause = error instanceof TillsyncError ? error.cause : error;
  const causes = cause instanceof AggregateError ? cause.errors : [cause];
  const isBeforeSending = (code = '') => code !== 'ETIMEDOUT' && Object.hasOwn(FAULTS, code);
  return causes.length > 0 && causes.every((each) => isBeforeSending(codeOf(each)));
}

/** Returns host and port of an address such as `https://api.example.com/v1`. */
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

/** Sends requests to the platform. Tests and simulations pass one that stays inside the process. */
export interface Transport {
  /**
   * Sends once, without retry, and reads the whole answer. Throws `platform-unreachable` when it is not complete in
   * time, `platform-garbled` when it is larger than `bodyMaxBytes`, and `aborted` when the signal ended it.
   */
  send(request: TransportRequest): Promise<TransportAnswer>;
  close(): Promise<void>;
}

interface TransportRequest {
  /** Name of the endpoint for metrics. It does not change the request. */
  endpoint?: Endpoint;
  method: string;
  /** Path below the base address, with its query. */
  path: string;
  headers: Record<string, string>;
  body?: string;
  /**
   * Limit from the first attempt to connect to the last byte of the answer. If left out, only the connection's end
   * counts.
   */
  timeoutMs?: number;
  bodyMaxBytes: number;
  signal?: AbortSignal;
  /**
   * Uses a new connection, because on a kept-alive connection that the server is just closing it is unknown whether the
   * request arrived.
   */
  freshConnection?: boolean;
}

export interface TransportAnswer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  bytes: Uint8Array;
}

/** An answer together with the secrets that were sent. No message made from the answer may contain one. */
export interface CallAnswer extends TransportAnswer {
  secrets: readonly string[];
}

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
/** First buffer for an answer without Content-Length. */
const FIRST_BYTES = 65_536;
const CONNECTIONS = 8;

/** Creates an HTTP/1.1 transport with undici agents of its own. */
export function createHttpTransport(
  options: PlatformWay & { clock: Clock; connectTimeoutMs?: number },
): Transport {
  const base = options.baseUrl.replace(/\/+$/, '');
  const address = addressOf(base);
  const proxy = proxyOf(options);
  let agents: { kept: Dispatcher; fresh: Dispatcher } | undefined;
  /** undici is loaded with the first call, because a service opens its ports before it calls. */
  const madeAgents = ({ Agent, ProxyAgent }: Pick<typeof import('undici'), 'Agent' | 'ProxyAgent'>) => {
    const timeout = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    const secureContext = trustOf(options);
    const connect = { timeout, ...(secureContext && { secureContext }) };
    // Only the total timeout below is used, because undici's own timeouts are coarse.
    const common = { connect, headersTimeout: 0, bodyTimeout: 0, allowH2: false };
    const agent = (more: Agent.Options) =>
      proxy === undefined
        ? new Agent({ ...common, ...more })
        : new ProxyAgent({ ...common, ...more, uri: proxy, requestTls: connect, proxyTls: connect });
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
          headers: wanted.headers,
          body: wanted.body ?? null,
          dispatcher: wanted.freshConnection ? agents.fresh : agents.kept,
          signal: limit.signal,
        });
        return {
          status: answer.statusCode,
          headers: flattened(answer.headers),
          bytes: await readBody(answer.body, Number(answer.headers['content-length']), wanted.bodyMaxBytes),
        };
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

/** Combines the caller's signal and the total timeout into one signal, and reports which of them fired. */
function timeLimit(clock: Clock, { timeoutMs, signal }: TransportRequest) {
  const ended = new AbortController();
  const cut = new AbortController();
  let reason: TillsyncError | undefined;
  const stop = (why: TillsyncError) => {
    if (ended.signal.aborted) return;
    reason ??= why;
    cut.abort();
  };
  const onAbort = () => stop(new TillsyncError('aborted', 'Stopped while a request was under way.'));
  if (signal?.aborted) onAbort();
  signal?.addEventListener('abort', onAbort, { once: true });
  if (timeoutMs !== undefined) {
    void clock.sleep(timeoutMs, ended.signal).then(() => stop(noAnswerWithin(timeoutMs)));
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

/** Reads into one buffer of the announced length, so that a large answer is not in memory twice. */
async function readBody(
  body: AsyncIterable<Uint8Array>,
  saidBytes: number,
  maxBytes: number,
): Promise<Uint8Array> {
  const isUsable = Number.isSafeInteger(saidBytes) && saidBytes > 0 && saidBytes <= maxBytes;
  let whole = Buffer.allocUnsafeSlow(isUsable ? saidBytes : FIRST_BYTES);
  let size = 0;
  for await (const chunk of body) {
    const end = size + chunk.length;
    // Throwing out of the loop destroys the stream and its connection.
    if (end > maxBytes) {
      throw new TillsyncError('platform-garbled', `The platform's answer is larger than ${maxBytes} bytes.`);
    }
    if (end > whole.length) {
      const wider = Buffer.allocUnsafeSlow(Math.max(end, 2 * whole.length));
      wider.set(whole.subarray(0, size));
      whole = wider;
    }
    whole.set(chunk, size);
    size = end;
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

/** Returns the platform's wall clock from the Date header (whole seconds); undefined if it is unreadable. */
export function serverDateMs(headers: Record<string, string>): number | undefined {
  const ms = Date.parse(headers.date ?? '');
  return Number.isNaN(ms) ? undefined : ms;
}

/** Returns the milliseconds of a Retry-After header, given in seconds or as a date; undefined if it is unreadable. */
export function parseRetryAfter(header: string | undefined, serverNowMs: number): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const dateMs = /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(dateMs) ? undefined : dateMs - serverNowMs;
}

const MESSAGE_MAX = 300;
/** Statuses about the request itself (too slow, too large, too early), which a proxy may answer with any body. */
const OF_THE_REQUEST = [408, 413, 414, 425, 431];

/**
 * Throws for every status other than 2xx, except 401, 403 and 429, which are judged before. 5xx gives
 * `platform-failed`, 4xx `platform-refused`. `platform-garbled` means a redirect (the API has none, a captive portal
 * does) or a 4xx without a JSON object, which a proxy sends while the platform is away.
 */
export function expectSuccess(answer: CallAnswer): void {
  const { status } = answer;
  if (status >= 200 && status < 300) return;
  if (status >= 400 && status < 500) {
    if (!jsonObject(answer) && !OF_THE_REQUEST.includes(status)) throw garbled(answer, 'no JSON');
    const message = sentMessage(answer);
    throw new TillsyncError('platform-refused', message ?? `The platform refused with HTTP ${status}.`, {
      httpStatus: status,
      retryable: status === 408 || status === 425,
    });
  }
  if (status >= 500) {
    throw new TillsyncError('platform-failed', `The platform failed with HTTP ${status}.`, {
      httpStatus: status,
      hint: 'The fault is on the side of the platform; tillsync tries again by itself.',
    });
  }
  throw garbled(answer, `HTTP ${status}`);
}

/** Reads `data` of an envelope. `success: false` throws `platform-refused` with the platform's message. */
export function readData(answer: CallAnswer): unknown {
  return readEnvelope(answer).data;
}

/** Reads an envelope that does not say `success: false`. Throws as `readData` does. */
export function readEnvelope(answer: CallAnswer): { success: true | null; data: unknown } {
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(answer.bytes));
  } catch {
    throw garbled(answer, 'no JSON');
  }
  const read = envelopeAnswer.safeParse(json);
  if (!read.success) throw garbled(answer, 'no envelope');
  const { success, message, data } = read.data;
  if (success === false) {
    throw new TillsyncError('platform-refused', bounded(message ?? '', answer) || 'The platform refused.', {
      httpStatus: answer.status,
    });
  }
  if (success === null && !('data' in read.data)) throw garbled(answer, 'no envelope');
  return { success, data };
}

/** `value` by `schema`, or `platform-garbled`. */
export function readAs<T>(schema: z.ZodType<T>, value: unknown, answer: CallAnswer): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const where = read.error.issues[0]?.path.join('.') ?? '';
  throw garbled(answer, `an unexpected ${where === '' ? 'shape' : `shape at ${where}`}`);
}

/**
 * Checks cheaply that an answer, which may be huge, begins and ends like JSON and is not HTML. Its reader judges the
 * rest.
 */
export function expectJsonLike(answer: CallAnswer): void {
  const { bytes } = answer;
  const isBlank = (byte: number | undefined) =>
    byte === 0x20 || (byte !== undefined && byte >= 0x09 && byte <= 0x0d);
  let start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  while (isBlank(bytes[start])) start++;
  let end = bytes.length - 1;
  while (end > start && isBlank(bytes[end])) end--;
  const open = bytes[start];
  const close = bytes[end];
  const matches = (open === 0x7b && close === 0x7d) || (open === 0x5b && close === 0x5d);
  const html = /\bhtml\b/i.test(answer.headers['content-type'] ?? '');
  if (html || !matches || end === start) throw garbled(answer, 'no JSON');
}

/** Returns the platform's message in a refusal, if there is one. */
export function sentMessage(answer: CallAnswer): string | undefined {
  const body = jsonObject(answer) ?? {};
  for (const value of [Reflect.get(body, 'message'), Reflect.get(body, 'error')]) {
    if (typeof value === 'string' && value.trim() !== '') return bounded(value, answer);
    if (Array.isArray(value) && value.length > 0) return bounded(value.map(String).join('; '), answer);
  }
  return undefined;
}

/** Parses a short answer. Returns undefined if it is not a JSON object. */
function jsonObject({ bytes }: CallAnswer): object | undefined {
  try {
    const body: unknown = JSON.parse(new TextDecoder().decode(bytes.subarray(0, 65_536)));
    return typeof body === 'object' && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}

/** Cuts a text of the platform short, puts it on one line, and removes the secrets that were sent. */
export function bounded(text: string, { secrets }: Pick<CallAnswer, 'secrets'>): string {
  let clean = text;
  for (const secret of secrets) if (secret !== '') clean = clean.replaceAll(secret, '[secret]');
  return clean
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MESSAGE_MAX);
}

/** Returns a `platform-garbled` error that says what was found instead. */
export function garbled(answer: CallAnswer, found: string): TillsyncError {
  const type = bounded(answer.headers['content-type'] ?? 'no content type', answer).slice(0, 80);
  return new TillsyncError(
    'platform-garbled',
    `The platform's answer could not be read: ${found} (HTTP ${answer.status}, ${type}, ${answer.bytes.length} bytes).`,
    {
      httpStatus: answer.status,
      hint: 'A proxy or a login page may stand in between; check platform.base_url from this machine.',
    },
  );
}
