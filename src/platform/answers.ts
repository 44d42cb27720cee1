import type { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { jsonText, parseLossless } from '../core/values.ts';
import type { SingleAnswer } from './platform.ts';
import {
  type BatchAnswer,
  batchData,
  envelopeAnswer,
  type ProductPage,
  type ProductRecord,
  productListData,
  readProduct,
} from './schemas.ts';
import type { TokenPair, TokenStore } from './tokens.ts';
import type { CallAnswer } from './transport.ts';

/** Returns the platform's wall clock from the Date header, which has whole seconds; undefined if it is unreadable. */
export function serverDateMs(headers: Record<string, string>): number | undefined {
  const ms = Date.parse(headers.date ?? '');
  return Number.isNaN(ms) ? undefined : ms;
}

/**
 * Number of successive answers that must agree before this machine's clock counts as wrong, because one of several
 * servers may be wrong.
 */
const AGREEING = 3;
/** If the wall clock moves by more than this against the monotonic clock, it was set or the machine was asleep. */
const JUMP_MS = 10_000;

/**
 * Follows the platform's wall clock by this machine's monotonic clock, so that a jump of this machine's wall clock is
 * noticed.
 */
export class PlatformClock {
  readonly #clock: Clock;
  readonly #store: Pick<TokenStore, 'wasHandedIn'>;
  /**
   * The last answers, newest first. `offsetMs` is the platform's wall clock, `aheadMs` this machine's, each minus the
   * monotonic clock.
   */
  #seen: { offsetMs: number; aheadMs: number }[] = [];
  /** A moment by the present pair's server clock and by the monotonic clock. `isGuess` until an answer confirms it. */
  #pair: { generation: number; serverMs: number; atMonoMs: number; isGuess: boolean } | undefined;

  constructor(options: { clock: Clock; store: Pick<TokenStore, 'wasHandedIn'> }) {
    this.#clock = options.clock;
    this.#store = options.store;
  }

  /** Records the Date header of an answer. */
  observe(serverMs: number): void {
    const atMonoMs = this.#clock.monotonicMs();
    const seen = { offsetMs: serverMs - atMonoMs, aheadMs: this.#clock.nowMs() - atMonoMs };
    this.#seen = [seen, ...this.#seen].slice(0, AGREEING);
    if (this.#pair?.isGuess) this.#pair = { ...this.#pair, serverMs, atMonoMs, isGuess: false };
  }

  /**
   * Returns the milliseconds by which the platform's wall clock is ahead of this machine's, by the last answer;
   * undefined before the first.
   */
  skewMs(): number | undefined {
    return this.#skews()[0];
  }

  /**
   * Returns the error of this machine's clock: the smallest that the last answers show; undefined if there are too few.
   * Answers from before the clock was set, or the machine slept, do not count, as the monotonic clock stops in sleep.
   */
  agreedSkewMs(): number | undefined {
    const skews = this.#skews();
    if (skews.length < AGREEING) return undefined;
    const aheadMs = this.#clock.nowMs() - this.#clock.monotonicMs();
    const isSince = this.#seen.map((each) => Math.abs(each.aheadMs - aheadMs) <= JUMP_MS);
    // If the clock was right before it was set, two answers are enough.
    const [, , before] = this.#seen;
    const wasSet = before && !isSince[2] && Math.abs(before.offsetMs - before.aheadMs) <= JUMP_MS;
    const told = wasSet ? skews.slice(0, AGREEING - 1) : skews;
    const leastMs = told.reduce((least, each) => (Math.abs(each) < Math.abs(least) ? each : least));
    const isSame = isSince.slice(0, told.length).every(Boolean);
    return isSame || Math.abs(leastMs) <= JUMP_MS ? leastMs : undefined;
  }

  #skews(): number[] {
    const aheadMs = this.#clock.monotonicMs() - this.#clock.nowMs();
    return this.#seen.map(({ offsetMs }) => offsetMs + aheadMs);
  }

  /**
   * Returns the present time of the server that issued `pair`: its time at the receipt plus the time since, because
   * later answers may come from servers with other clocks. For a pair from a person, the first answer gives the time.
   */
  ofPair({ generation, clockSkewMs, refreshToken }: TokenPair): number {
    const atMonoMs = this.#clock.monotonicMs();
    if (this.#pair?.generation !== generation) {
      const serverMs = this.#clock.nowMs() + clockSkewMs;
      this.#pair = { generation, serverMs, atMonoMs, isGuess: this.#store.wasHandedIn(refreshToken) };
    }
    return this.#pair.serverMs + atMonoMs - this.#pair.atMonoMs;
  }
}

/** Returns a Retry-After header, in seconds or as a date, as milliseconds to wait; undefined if it is unreadable. */
export function parseRetryAfter(header: string | undefined, serverNowMs: number): number | undefined {
  const text = header?.trim() ?? '';
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const dateMs = /[a-z]/i.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(dateMs) ? undefined : dateMs - serverNowMs;
}

const MESSAGE_MAX = 300;
/** HTTP statuses about the request itself (too slow, large or early). A proxy may send them with any body. */
const OF_THE_REQUEST = [408, 413, 414, 425, 431];

/**
 * Throws for every status except 2xx. Callers handle 401, 403 and 429 before. 5xx gives `platform-failed`, and 4xx
 * `platform-refused`. `platform-garbled` is for what the API itself does not send: a redirect, as of a captive portal,
 * or a 4xx without a JSON object, as of a proxy while the platform is down.
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

/** Reads `data` of an envelope. Throws `platform-refused` with the platform's message for `success: false`. */
export function readData(answer: CallAnswer): unknown {
  return readEnvelope(answer).data;
}

/** Size up to which an answer is parsed only to find a refusal. An answer with more says more than one. */
const REFUSAL_MAX_BYTES = 65_536;

/** Throws `platform-refused` with the platform's message for `success: false` in an answer of any other shape. */
export function expectNoRefusal(answer: CallAnswer): void {
  if (answer.bytes.length > REFUSAL_MAX_BYTES) return;
  const body = jsonObject(answer);
  const { success } = envelopeAnswer.safeParse(body).data ?? {};
  if (success !== false) return;
  throw new TillsyncError('platform-refused', sentMessage(answer) ?? 'The platform refused.', {
    httpStatus: answer.status,
  });
}

/** Reads an envelope. Throws as `readData` does. */
function readEnvelope(answer: CallAnswer): { success: true | null; data: unknown } {
  let json: unknown;
  try {
    json = parseLossless(new TextDecoder('utf-8', { fatal: true }).decode(answer.bytes));
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

/**
 * Reads `data` of an answer to a change. `success: true` without `data` says that the change was applied, so nothing
 * but the details is unknown. Throws as `readData` does.
 */
export function readDone(answer: CallAnswer): unknown {
  const { success, data } = readEnvelope(answer);
  return success === true ? (data ?? {}) : data;
}

/** Reads a value by a schema. Throws `platform-garbled`. */
export function readAs<T>(schema: z.ZodType<T>, value: unknown, answer: CallAnswer): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const where = read.error.issues[0]?.path.join('.') ?? '';
  throw garbled(answer, `an unexpected ${where === '' ? 'shape' : `shape at ${where}`}`);
}

/**
 * Checks that an answer begins and ends like JSON and is not HTML. It does not parse the answer, which may be very
 * large.
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

/** Returns the platform's message in a refusal; undefined if there is none. */
export function sentMessage(answer: CallAnswer): string | undefined {
  const body = jsonObject(answer) ?? {};
  for (const value of [Reflect.get(body, 'message'), Reflect.get(body, 'error')]) {
    if (typeof value === 'string' && value.trim() !== '') return bounded(value, answer);
    if (Array.isArray(value) && value.length > 0) return bounded(value.map(String).join('; '), answer);
  }
  return undefined;
}

/** Parses an answer. A refused batch may repeat its items and be long. Returns undefined if it is no JSON object. */
export function jsonObject({ bytes }: CallAnswer): object | undefined {
  try {
    const body: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof body === 'object' && body !== null && !Array.isArray(body) ? body : undefined;
  } catch {
    return undefined;
  }
}

/** Shortens a text of the platform, puts it on one line, and removes the secrets that were sent. */
function bounded(text: string, { secrets }: Pick<CallAnswer, 'secrets'>): string {
  let clean = text;
  for (const secret of secrets) if (secret !== '') clean = clean.replaceAll(secret, '[secret]');
  return clean
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MESSAGE_MAX);
}

/** Returns the error `platform-garbled`. `found` says what the answer was instead. */
function garbled(answer: CallAnswer, found: string): TillsyncError {
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

const TOO_DEEP = 'An entry that is nested too deeply to be kept.';

/**
 * Maximum number of JSON objects in one answer. It is far more than a catalogue with its skus, stocks and integrations
 * has. Parsing more would block the event loop for minutes.
 */
const OBJECTS_MAX = 300_000;

const OPENING_BRACE = 0x7b;

/**
 * Reads a page of GET /product/list. The JSON text of products that are unreadable, even in part, is in `unreadable`;
 * those that cannot be read at all are only there.
 */
export function readProductPage(answer: CallAnswer): ProductPage {
  // null in the place of the page means that there are no products.
  const data = readBounded(answer) ?? { docs: null, totalDocs: 0, hasNextPage: false };
  const { docs: entries, ...counts } = readAs(productListData, data, answer);
  const docs: ProductRecord[] = [];
  const unreadable: string[] = [];
  for (const entry of entries) {
    const read = readProduct(entry);
    if (read) docs.push(read.record);
    if (!read?.complete) unreadable.push(jsonText(entry) ?? TOO_DEEP);
  }
  const { totalDocs, limit, page, totalPages, hasNextPage } = counts;
  return { docs, unreadable, totalDocs, limit, page, totalPages, hasNextPage };
}

/** Reads the product in an answer of GET /product. Returns null if the platform does not know it. */
export function readProductData(answer: CallAnswer): ProductRecord | null {
  const data = readBounded(answer);
  if (data === null) return null;
  if (data === undefined) throw garbled(answer, 'no data');
  const read = readProduct(data);
  if (read) return read.record;
  throw new TillsyncError('platform-garbled', 'The platform sent a product without an id.', {
    httpStatus: answer.status,
  });
}

/** Reads `data` of the envelope. Throws as `readData` does, and `platform-garbled` for too many objects. */
function readBounded(answer: CallAnswer): unknown {
  let objects = 0;
  for (const byte of answer.bytes) if (byte === OPENING_BRACE) objects += 1;
  if (objects > OBJECTS_MAX) throw garbled(answer, `more than ${OBJECTS_MAX} objects`);
  return readData(answer);
}

/** Reads the answer of PUT /product or PUT /product/stock. Throws `platform-refused` or `platform-garbled`. */
export function readSingle(answer: CallAnswer): SingleAnswer {
  return readEnvelope(answer).success === true ? 'applied' : 'unsaid';
}

/** Reads the answer of either batch endpoint. Throws `platform-refused` or `platform-garbled`. */
export function readBatchData(answer: CallAnswer): BatchAnswer {
  const { updated, total, errors } = readAs(batchData, readDone(answer), answer);
  const told = (text: string) => bounded(text, answer) || 'The platform gives no reason.';
  return { updated, total, errors: errors.map((error) => ({ ...error, message: told(error.message) })) };
}
