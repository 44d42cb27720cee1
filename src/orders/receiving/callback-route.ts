import { isUtf8 } from 'node:buffer';
import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import { ACCEPTED_CODINGS, codingOf, DecodeError, decoded } from '../../core/content-coding.ts';
import { asTillsyncError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import type { Clock } from '../../core/time.ts';
import type { IncomingEntry, OrderReading } from '../merging/order.ts';
import { type Callback, type CallbackFault, PROBE_HEADER, PROBE_SECRET } from './callback-log.ts';
import type { GroupCommit } from './group-commit.ts';

/**
 * Sends a short JSON answer without internal details. It uses Node's response directly, because Fastify's reply would
 * only make each answer slower.
 */
export function answer(
  response: ServerResponse,
  status: number,
  json: string,
  headers: Record<string, string> = {},
): void {
  if (response.headersSent) return;
  response.writeHead(status, {
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(json),
    ...headers,
  });
  response.end(json);
}

/** Sends an answer that ends the connection, so that a stranger has to open one for each request. */
export function refuse(
  response: ServerResponse,
  status: number,
  json: string,
  headers: Record<string, string> = {},
): void {
  answer(response, status, json, { ...headers, connection: 'close' });
}

/**
 * Body of a callback. `cut-off`: the connection was closed before the whole body arrived, so nobody waits for an
 * answer.
 */
type RequestBody = Buffer | 'too-large' | 'cut-off';

/**
 * Reads a body of at most `limitBytes`. Returns `too-large` as soon as the header or the received bytes exceed the
 * limit; the rest is read and discarded.
 */
function readRequestBody(request: IncomingMessage, limitBytes: number): Promise<RequestBody> {
  const announced = Number(request.headers['content-length']);
  if (announced > limitBytes) return Promise.resolve('too-large');
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    let isSettled = false;
    const settle = (body: RequestBody) => {
      isSettled = true;
      resolve(body);
    };
    const onData = (chunk: Buffer) => {
      if (isSettled) return;
      bytes += chunk.length;
      if (bytes <= limitBytes) {
        chunks.push(chunk);
        return;
      }
      chunks.length = 0;
      settle('too-large');
    };
    const onEnd = () => {
      if (!isSettled) settle(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, bytes));
    };
    // Without an `error` listener, a cut connection would end the process; the `close` event follows and resolves the
    // promise. The listeners are not removed, because that would cost time for each callback.
    request
      .on('data', onData)
      .on('end', onEnd)
      .on('close', () => resolve('cut-off'))
      .on('error', () => {});
  });
}

/**
 * Checks that a callback carries the agreed secret (document, "Webhook origin validation"). All digests are always
 * compared, so that the duration does not reveal which secret matched.
 */
export class SecretGate {
  readonly #secrets: () => readonly string[];
  #known: readonly string[] = [];
  #digests: readonly Buffer[] = [];

  /**
   * `secrets` returns all valid secrets: usually one, several during a rotation, none if none is configured. '' among
   * them admits callbacks without the header.
   */
  constructor(secrets: () => readonly string[]) {
    this.#secrets = secrets;
  }

  /**
   * Returns whether a header value is a valid secret. Node gives one character per byte, and joins a repeated header
   * by `, `, which matches no secret. Throws what `secrets()` throws.
   */
  admits(header: string | string[] | undefined): boolean {
    const secrets = this.#secrets();
    this.#remember(secrets);
    const single = typeof header === 'string' ? header : '';
    const offered = hash('sha256', Buffer.from(single, 'latin1'), 'buffer');
    let fits = false;
    for (const digest of this.#digests) fits = timingSafeEqual(offered, digest) || fits;
    return fits && (single !== '' || header === undefined);
  }

  #remember(secrets: readonly string[]): void {
    if (secrets.length === this.#known.length && secrets.every((secret, i) => secret === this.#known[i]))
      return;
    this.#known = [...secrets];
    this.#digests = secrets.map((secret) => hash('sha256', Buffer.from(secret, 'utf8'), 'buffer'));
  }
}

/**
 * Reads the order in a notification, or returns a sentence that says what is missing. `raw` is the JSON text of
 * `value`, because the text has all digits of numbers that are too long for JavaScript.
 */
export type NotificationReader = (value: unknown, raw: string) => OrderReading | { unreadable: string };

interface Notification {
  entry: IncomingEntry;
  /** False if the body is not JSON, which means that the sender is faulty. */
  isJson: boolean;
}

const BYTE_ORDER_MARK = '\u{FEFF}';

/**
 * Turns an authenticated body into an order, or into an entry for quarantine. Never throws. A field name such as
 * `__proto__` does no harm, because JSON.parse creates it as an own property.
 */
export function readNotification(
  body: Buffer,
  options: { read: NotificationReader; receivedAtMs: number },
): Notification {
  const { read, receivedAtMs } = options;
  const unreadable = (reason: string, payload: string | Uint8Array, isJson: boolean): Notification => ({
    entry: { kind: 'unreadable', unreadable: { source: 'webhook', receivedAtMs, reason, payload } },
    isJson,
  });

  if (!isUtf8(body)) return unreadable('The body is not UTF-8 text.', body, false);
  const raw = body.toString('utf8');
  const json = raw.startsWith(BYTE_ORDER_MARK) ? raw.slice(1) : raw;
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return unreadable(raw === '' ? 'The body is empty.' : 'The body is not JSON.', raw, false);
  }
  try {
    const reading = read(value, json);
    if ('unreadable' in reading) return unreadable(reading.unreadable, raw, true);
    const observation = { source: 'webhook' as const, observedAtMs: receivedAtMs, raw: json, reading };
    return { entry: { kind: 'order', observation }, isJson: true };
  } catch (error) {
    // The JSON is nested too deeply for the stack, or has an unexpected shape. The whole notification is put into
    // quarantine.
    const why = error instanceof Error ? error.name : 'unknown error';
    return unreadable(`The notification could not be taken apart (${why}).`, raw, true);
  }
}

/**
 * Decodes an authenticated body. Returns `too-large` as soon as it is larger than the limit. A body that cannot be
 * decoded is kept as it came, with the reason.
 */
async function decodedBody(
  body: Buffer,
  header: string,
  limitBytes: number,
): Promise<Buffer | 'too-large' | { status: 400 | 415; reason: string }> {
  const coding = codingOf(header);
  if (coding === null) return body;
  if (coding === undefined) {
    const reason = `The body is compressed as ${header.slice(0, 40)}; tillsync reads ${ACCEPTED_CODINGS}.`;
    return { status: 415, reason };
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of decoded(Readable.from([body]), coding, limitBytes)) {
      bytes += chunk.length;
      if (bytes > limitBytes) return 'too-large';
      chunks.push(chunk);
    }
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    return { status: 400, reason: `The body is not ${coding}, as its header says.` };
  }
  return Buffer.concat(chunks, bytes);
}

/** Header with the secret (document, "Callback request sent by the service"). */
const SECRET_HEADER = 'x-webhook-secret';
const RETRY_AFTER_S = 5;
const ADDRESS_LENGTH_MAX = 45;

export interface CallbackRouteOptions {
  /** The only path at which callbacks are accepted, such as `/webhook`. */
  path: string;
  read: NotificationReader;
  clock: Clock;
  log: Log;
  bodyLimitBytes: number;
  /** Called after each request to the path was answered, or its connection was cut before the answer. */
  onAnswered?: ((callback: Callback, durationMs: number) => void) | undefined;
}

/**
 * Facts about a request that are noted before its answer. They are stored on the response object, so that they are
 * freed together with it.
 */
type Noted = Partial<Pick<Callback, 'fault' | 'orderId' | 'code' | 'orderStatus'>>;
const NOTED = Symbol('noted');
type NotedResponse = ServerResponse & { [NOTED]?: Noted };

function note(response: NotedResponse, noted: Noted): void {
  response[NOTED] = noted;
}

function notedWith(response: NotedResponse): Noted {
  return response[NOTED] ?? {};
}

/**
 * Returns the route for callbacks. It checks the secret, reads the body and answers after the commit: 200 stored · 400
 * not JSON, bytes stored · 401 wrong secret · 413 too large · 415 unknown Content-Encoding, bytes stored · 503 not
 * stored, to be sent again.
 */
export function callbackRoute(
  { path, clock, log, bodyLimitBytes, read, onAnswered }: CallbackRouteOptions,
  gate: SecretGate,
  commits: GroupCommit,
  /** Returns true while the server closes; each answer then also ends its connection. */
  isClosing: () => boolean,
): RouteOptions {
  const onRequest = (request: FastifyRequest, { raw }: FastifyReply, done: () => void): void => {
    try {
      if (gate.admits(request.raw.headers[SECRET_HEADER])) {
        done();
        return;
      }
      note(raw, { fault: whyRefused(request.raw) });
      refuse(raw, 401, '{"error":"wrong or missing x-webhook-secret"}');
    } catch (error) {
      note(raw, { fault: 'not-kept' });
      log.error({ err: error }, 'the webhook secret could not be read; a notification is put off');
      putOff(raw);
    }
  };

  const receive = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readRequestBody(request, bodyLimitBytes);
    if (body === 'cut-off') return;
    if (body === 'too-large') {
      note(response, { fault: 'too-large' });
      answer(response, 413, '{"error":"the notification is too large"}');
      return;
    }
    const coding = request.headers['content-encoding'];
    const plain = coding === undefined ? body : await decodedBody(body, coding, bodyLimitBytes);
    if (plain === 'too-large') {
      note(response, { fault: 'too-large' });
      answer(response, 413, '{"error":"the notification is too large"}');
      return;
    }
    if (!Buffer.isBuffer(plain)) {
      const { status, reason } = plain;
      note(response, { fault: 'not-decoded' });
      const unreadable = { source: 'webhook', receivedAtMs: clock.nowMs(), reason, payload: body } as const;
      await commits.add({ kind: 'unreadable', unreadable }, body.length);
      const accepts = status === 415 ? { 'accept-encoding': ACCEPTED_CODINGS } : {};
      answer(response, status, JSON.stringify({ error: reason }), {
        ...accepts,
        ...(isClosing() && { connection: 'close' }),
      });
      return;
    }
    const { entry, isJson } = readNotification(plain, { read, receivedAtMs: clock.nowMs() });
    note(response, notedOf(entry, isJson));
    await commits.add(entry, plain.length);
    const closing = isClosing() ? { connection: 'close' } : undefined;
    if (isJson) answer(response, 200, '{"ok":true}', closing);
    else answer(response, 400, '{"error":"the body is not JSON"}', closing);
  };

  const handler = ({ raw: request }: FastifyRequest, { raw: response }: FastifyReply): void => {
    receive(request, response).catch((error) => {
      log.debug({ code: asTillsyncError(error).code }, 'a notification is put off');
      note(response, { ...notedWith(response), fault: 'not-kept' });
      putOff(response);
    });
  };

  const onResponse = (request: FastifyRequest, reply: FastifyReply, done: () => void): void => {
    const status = reply.raw.headersSent ? reply.raw.statusCode : null;
    const { orderId = null, code = null, orderStatus = null, fault = null } = notedWith(reply.raw);
    const callback = {
      atMs: clock.nowMs(),
      status,
      orderId,
      code,
      orderStatus,
      from: senderOf(request),
      fault: status === null ? ('cut-off' as const) : fault,
      isProbe: isProbe(request.raw, status),
    };
    onAnswered?.(callback, reply.elapsedTime);
    done();
  };

  const route: RouteOptions = { method: 'POST', url: path, onRequest, handler };
  return onAnswered ? { ...route, onResponse } : route;
}

function isProbe({ headers }: IncomingMessage, status: number | null): boolean {
  if (status === 401) return headers[SECRET_HEADER] === PROBE_SECRET;
  return headers[PROBE_HEADER] !== undefined;
}

function whyRefused({ headers }: IncomingMessage): CallbackFault {
  if (headers[SECRET_HEADER] !== undefined) return 'secret-wrong';
  return /^application\/(.*\+)?json\b/i.test(headers['content-type'] ?? '')
    ? 'secret-missing'
    : 'no-callback';
}

function notedOf(entry: IncomingEntry, isJson: boolean): Noted {
  if (entry.kind === 'unreadable') return { fault: isJson ? 'unreadable' : 'not-json' };
  const { orderId, fields } = entry.observation.reading;
  return { orderId, code: fields.code ?? null, orderStatus: fields.status ?? null };
}

/** Returns the sender's address. Behind a proxy on this machine, this is the address that the proxy reports. */
function senderOf({ socket, headers }: FastifyRequest): string {
  const address = (socket.remoteAddress ?? '').replace(/^::ffff:/, '');
  const named =
    String(headers['x-forwarded-for'] ?? '')
      .split(',')
      .at(-1)
      ?.trim() ?? '';
  const isProxy = address === '::1' || address.startsWith('127.') || address === '';
  return (isProxy && named !== '' ? named : address).slice(0, ADDRESS_LENGTH_MAX);
}

function putOff(response: ServerResponse): void {
  const retryAfter = { 'retry-after': String(RETRY_AFTER_S) };
  answer(response, 503, '{"error":"could not be kept, send it again"}', retryAfter);
}
