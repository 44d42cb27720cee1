import type { Agent, Dispatcher } from 'undici';
import type { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { Endpoint } from './platform.ts';
import { envelopeAnswer } from './schemas.ts';

/** What was to be reached. */
export interface Address {
  host: string;
  port: number;
}

const ONLINE =
  'Check the internet connection and the firewall of this machine; tillsync tries again by itself.';
const CLOCK = "Check this machine's clock, and platform.base_url.";
const SPELLING = 'Check the address and its port.';

type Fault = [fault: string, hint: string];
const NO_SUCH_NAME: Fault = [
  'the name {host} was not found',
  'Check the spelling of the address, and the DNS of this machine.',
];
const SILENT: Fault = ['{host} did not answer on port {port}', ONLINE];
const UNTRUSTED: Fault = ['the certificate of {host} is signed by nobody this machine trusts', CLOCK];

/** What is wrong, and what to do about it. All but ETIMEDOUT come only before a connection stands. */
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

/** What undici or the system threw, as `platform-unreachable` that keeps its cause. */
export function networkFault(error: unknown, address: Address): TillsyncError {
  const code = codeOf(error);
  const [fault, hint] = sentenceOf(code);
  const told = fault.replace('{host}', address.host).replace('{port}', String(address.port));
  const ending = code === undefined ? '' : ` (${code})`;
  return new TillsyncError('platform-unreachable', `Cannot reach the platform: ${told}${ending}.`, {
    cause: error,
    hint,
  });
}

/** No whole answer came within the time that a call may take. */
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

/** Host and port of an address such as `https://api.example.com/v1`. */
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

/** How one request reaches the platform; tests and simulations pass one that lives in the process. */
export interface Transport {
  /**
   * Sends once, without retry, and reads the whole answer. Throws `platform-unreachable` when no whole answer
   * came in time, `platform-garbled` when it is larger than `bodyMaxBytes`, `aborted` when the signal ended it.
   */
  send(request: TransportRequest): Promise<TransportAnswer>;
  close(): Promise<void>;
}

export interface TransportRequest {
  /** For whoever counts and measures; it changes nothing. */
  endpoint?: Endpoint;
  method: string;
  /** Below the base address, with its query. */
  path: string;
  headers: Record<string, string>;
  body?: string;
  /** From the first attempt to connect to the last byte of the answer; left out: as long as the connection stands. */
  timeoutMs?: number;
  bodyMaxBytes: number;
  signal?: AbortSignal;
  /** Not on a kept-alive connection: one that the other side is just closing would leave its fate unknown. */
  freshConnection?: boolean;
}

export interface TransportAnswer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  bytes: Uint8Array;
}

/** An answer to a call, with the secrets that were sent: no message from it may repeat one. */
export interface CallAnswer extends TransportAnswer {
  secrets: readonly string[];
}

const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 10_000;
/** Of an answer whose length is not said. */
const FIRST_BYTES = 65_536;
const CONNECTIONS = 8;

/** HTTP/1.1 by undici with an agent of its own. */
export function createHttpTransport(options: {
  /** The platform's base address, with or without a path. */
  baseUrl: string;
  clock: Clock;
  connectTimeoutMs?: number;
}): Transport {
  const base = options.baseUrl.replace(/\/+$/, '');
  const address = addressOf(base);
  // The total timeout below is the only one that counts: undici's own are coarse.
  const common = {
    connect: { timeout: options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS },
    headersTimeout: 0,
    bodyTimeout: 0,
    allowH2: false,
  };
  let agents: { kept: Agent; fresh: Agent } | undefined;
  return {
    async send(wanted) {
      const limit = timeLimit(options.clock, wanted);
      try {
        // Loaded with the first call: a service listens before it calls.
        const { Agent, request } = await import('undici');
        agents ??= {
          kept: new Agent({ ...common, connections: CONNECTIONS, keepAliveTimeout: KEEP_ALIVE_MS }),
          fresh: new Agent({ ...common, pipelining: 0 }),
        };
        const answer = await request(base + wanted.path, {
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
        throw error instanceof TillsyncError ? error : (limit.reason() ?? networkFault(error, address));
      } finally {
        limit.end();
      }
    },
    async close() {
      await Promise.all([agents?.kept.destroy(), agents?.fresh.destroy()]);
    },
  };
}

/** One signal for the caller's wish and the total timeout, and which of the two it was. */
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

/** Into one piece of memory of the length that the platform says, so that a large answer is not there twice. */
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
    // Leaving the loop by a throw destroys the stream and its connection.
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

/** The platform's wall clock by its Date header, which has whole seconds; undefined without a readable one. */
export function serverDateMs(headers: Record<string, string>): number | undefined {
  const ms = Date.parse(headers.date ?? '');
  return Number.isNaN(ms) ? undefined : ms;
}

/** Milliseconds that a Retry-After header asks for, in seconds or as a date; undefined when it cannot be read. */
export function parseRetryAfter(header: string | undefined, serverNowMs: number): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const dateMs = /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(dateMs) ? undefined : dateMs - serverNowMs;
}

const MESSAGE_MAX = 300;
/** Said of the request itself, by whoever reads it first and in whatever words: too slow, too large, too early. */
const OF_THE_REQUEST = [408, 413, 414, 425, 431];

/**
 * Throws for a status that is not a success: `platform-failed` for 5xx, `platform-refused` for 4xx, `platform-garbled`
 * for a redirect (the API knows none; a captive portal does) and for a 4xx without a JSON object, which a proxy says
 * while the platform is not there. 401, 403 and 429 are judged before.
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

/** `data` of an envelope; `success: false` throws `platform-refused` with the platform's own message. */
export function readData(answer: CallAnswer): unknown {
  return readEnvelope(answer).data;
}

/** An envelope that does not say `success: false`; throws as `readData`. */
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
 * A cheap look at an answer that may be huge: it must begin and end like JSON and not call itself HTML. What
 * lies between is judged by whoever reads it.
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

/** What the platform said in a refusal, if it can be found. */
export function sentMessage(answer: CallAnswer): string | undefined {
  const body = jsonObject(answer) ?? {};
  for (const value of [Reflect.get(body, 'message'), Reflect.get(body, 'error')]) {
    if (typeof value === 'string' && value.trim() !== '') return bounded(value, answer);
    if (Array.isArray(value) && value.length > 0) return bounded(value.map(String).join('; '), answer);
  }
  return undefined;
}

/** The body of a short answer; undefined where it is something else, which nobody would want to read. */
function jsonObject({ bytes }: CallAnswer): object | undefined {
  try {
    const body: unknown = JSON.parse(new TextDecoder().decode(bytes.subarray(0, 65_536)));
    return typeof body === 'object' && body !== null ? body : undefined;
  } catch {
    return undefined;
  }
}

/** A text of the platform's, short, on one line and without the secrets that were sent. */
export function bounded(text: string, { secrets }: Pick<CallAnswer, 'secrets'>): string {
  let clean = text;
  for (const secret of secrets) if (secret !== '') clean = clean.replaceAll(secret, '[secret]');
  return clean
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MESSAGE_MAX);
}

/** `platform-garbled`, saying what was found instead. */
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
