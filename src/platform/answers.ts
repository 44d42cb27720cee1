import type { z } from 'zod';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { envelopeAnswer } from './schemas.ts';
import type { TokenPair, TokenStore } from './tokens.ts';
import type { CallAnswer } from './transport.ts';

/** The platform's wall clock by its Date header, which has whole seconds; undefined without a readable one. */
export function serverDateMs(headers: Record<string, string>): number | undefined {
  const ms = Date.parse(headers.date ?? '');
  return Number.isNaN(ms) ? undefined : ms;
}

const MESSAGE_MAX = 300;

/**
 * Throws for a status that is not a success: `platform-failed` for 5xx, `platform-garbled` for a redirect (the
 * API knows none; a captive portal does), `platform-refused` for 4xx. 401, 403 and 429 are judged before.
 */
export function expectSuccess(answer: CallAnswer): void {
  const { status } = answer;
  if (status >= 200 && status < 300) return;
  if (status >= 400 && status < 500) {
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

/** The body as JSON; `platform-garbled` for HTML, cut-off JSON and the like. */
export function readJson(answer: CallAnswer): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(answer.bytes));
  } catch {
    throw garbled(answer, 'no JSON');
  }
}

/** `data` of an envelope; `success: false` throws `platform-refused` with the platform's own message. */
export function readData(answer: CallAnswer): unknown {
  return readEnvelope(answer).data;
}

/** An envelope that does not say `success: false`; throws as `readData`. */
export function readEnvelope(answer: CallAnswer): { success: true | null; data: unknown } {
  const read = envelopeAnswer.safeParse(readJson(answer));
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
  try {
    const body: unknown = JSON.parse(new TextDecoder().decode(answer.bytes.subarray(0, 65_536)));
    if (typeof body !== 'object' || body === null) return undefined;
    for (const value of [Reflect.get(body, 'message'), Reflect.get(body, 'error')]) {
      if (typeof value === 'string' && value.trim() !== '') return bounded(value, answer);
      if (Array.isArray(value) && value.length > 0) return bounded(value.map(String).join('; '), answer);
    }
  } catch {
    // Not JSON: nothing a person would want to read.
  }
  return undefined;
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

/** How many answers in a row must tell of a wrong clock here: one server of several may be wrong itself. */
const AGREEING = 3;

/** The platform's wall clock as its answers tell it, followed on our monotonic clock: a jump of ours is seen at once. */
export class PlatformClock {
  readonly #clock: Clock;
  readonly #store: Pick<TokenStore, 'wasHandedIn'>;
  /** Platform's wall clock minus our monotonic one, by the last answers, the newest first. */
  #seen: number[] = [];
  /** A moment of the present pair's life on both clocks, from which its age counts. */
  #pair: { generation: number; serverMs: number; atMonoMs: number; isGuess: boolean } | undefined;

  constructor(options: { clock: Clock; store: Pick<TokenStore, 'wasHandedIn'> }) {
    this.#clock = options.clock;
    this.#store = options.store;
  }

  /** Takes the Date of any answer. */
  observe(serverMs: number): void {
    const atMonoMs = this.#clock.monotonicMs();
    this.#seen = [serverMs - atMonoMs, ...this.#seen].slice(0, AGREEING);
    if (this.#pair?.isGuess) this.#pair = { ...this.#pair, serverMs, atMonoMs, isGuess: false };
  }

  /** Platform's wall clock minus ours, by the last answer; undefined: none came yet. */
  skewMs(): number | undefined {
    return this.#skews()[0];
  }

  /** How far ours is wrong at least, on which the last answers agree; undefined: too few came yet. */
  agreedSkewMs(): number | undefined {
    const skews = this.#skews();
    if (skews.length < AGREEING) return undefined;
    return skews.reduce((least, each) => (Math.abs(each) < Math.abs(least) ? each : least));
  }

  #skews(): number[] {
    const aheadMs = this.#clock.monotonicMs() - this.#clock.nowMs();
    return this.#seen.map((offsetMs) => offsetMs + aheadMs);
  }

  /**
   * The clock of the server that issued `pair`, as it was at its receipt and has gone on since: later answers may come
   * from servers with other clocks. For a pair that a person handed in, that of the first answer.
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

const STEP_MS = 1_000;

/**
 * Waits until this process has been awake for about `ms`; ends early when `signal` aborts. Time in which it stood still
 * (a paused machine, a blocked event loop, SIGSTOP) does not count: what arrived meanwhile is not read yet.
 */
export async function awakeFor(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  for (let restMs = ms; restMs > 0 && !signal.aborted; ) {
    const stepMs = Math.min(STEP_MS, restMs);
    const beginMs = clock.monotonicMs();
    await clock.sleep(stepMs, signal);
    const stoodStill = clock.monotonicMs() - beginMs > stepMs + STEP_MS;
    if (!stoodStill) restMs -= stepMs;
  }
}
