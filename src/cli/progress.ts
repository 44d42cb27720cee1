import { type Clock, formatDuration } from '../core/time.ts';
import type { Endpoint, Wait } from '../platform/platform.ts';
import { type Cli, printable, type TextSink } from './cli.ts';
import type { Say } from './speech.ts';

const CALL_NAMES: Record<Endpoint, string> = {
  'token.refresh': 'token refresh',
  'order.all': 'order poll',
  'product.put': 'product change',
  'product.stock.put': 'stock change',
  'product.batch': 'product batch',
  'product.stock.batch': 'stock batch',
  'product.list': 'product page',
  'product.get': 'product query',
  'webhook.put': 'webhook change',
  'webhook.get': 'webhook query',
};

/** Returns a line that says why a call waits and how long: `next order poll allowed in 1m 12s`. */
export function waitText({ endpoint, reason, waitMs }: Wait): string {
  const call = CALL_NAMES[endpoint];
  const rest = formatDuration(waitMs);
  const next = `next ${call} allowed in ${rest}`;
  return {
    interval: next,
    'in-flight': `another ${call} is under way; at most ${rest} more`,
    window: `the platform's cap on calls is reached; ${next}`,
    'retry-after': `the platform asked for patience (429); ${next}`,
    blocked: `the platform blocked the token (403); ${next}`,
    refreshing: `another process is refreshing the tokens; at most ${rest} more`,
  }[reason];
}

const TICK_MS = 1000;
/** Intervals of counts and countdowns if the output is no terminal. They are long, because a log keeps every line. */
const PLAIN_EVERY_MS = 10_000;
const PLAIN_WAIT_EVERY_MS = 30_000;
/** A wait that is shown already is shown again only if it now ends at least this much later. */
const SAME_WAIT_MS = 2_000;
const CLEAR_TO_END = '\u001b[K';
const COLUMNS_DEFAULT = 80;

/**
 * Shows what a command is doing. On a terminal it overwrites one line, which is cleared at the end; elsewhere it
 * writes plain lines, never the same one twice in a row.
 */
export class Progress {
  /** Translates what is shown. */
  say: Say = (english) => english;
  readonly #stream: TextSink;
  readonly #clock: Clock;
  #shown = false;
  #lastPlain = '';
  /** The wait that is shown: its reason, and its end by the monotonic clock. */
  #shownWait = { why: '', endMs: 0 };
  #lastCountMs = Number.NEGATIVE_INFINITY;
  #countdown = new AbortController();

  constructor({ stderr, clock }: Pick<Cli, 'stderr' | 'clock'>) {
    this.#stream = stderr;
    this.#clock = clock;
  }

  /** Shows a new step, such as `asking the platform for orders`. */
  step(text: string): void {
    this.#countdown.abort();
    this.#shownWait = { why: '', endMs: 0 };
    this.#show(text);
  }

  /** Shows the progress of a step, as `done of total` if the total is known. */
  count(what: string, done: number, total?: number): void {
    this.#countdown.abort();
    const text = total === undefined ? `${what}: ${done}` : `${what}: ${done} of ${total}`;
    const nowMs = this.#clock.monotonicMs();
    if (!this.#stream.isTTY && done !== total && nowMs - this.#lastCountMs < PLAIN_EVERY_MS) return;
    this.#lastCountMs = nowMs;
    this.#show(text);
  }

  /** Shows why the next call waits, with a countdown: each second on a terminal, each half minute elsewhere. */
  wait(wait: Wait): void {
    const why = `${wait.endpoint} ${wait.reason}`;
    const endMs = this.#clock.monotonicMs() + wait.waitMs;
    const isShown = why === this.#shownWait.why && endMs - this.#shownWait.endMs < SAME_WAIT_MS;
    if (isShown && !this.#stream.isTTY) return;
    this.#countdown.abort();
    this.#shownWait = { why, endMs };
    this.#countdown = new AbortController();
    void this.#tick(wait, endMs, this.#countdown.signal);
  }

  /** Writes a line above the progress line. The written line stays. */
  note(text: string): void {
    this.#stream.write(`${this.#stream.isTTY ? `\r${CLEAR_TO_END}` : ''}${printable(this.say(text))}\n`);
    this.#lastPlain = '';
  }

  /** Clears the progress line. */
  end(): void {
    this.#countdown.abort();
    if (this.#shown) this.#stream.write(`\r${CLEAR_TO_END}`);
    this.#shown = false;
  }

  async #tick(wait: Wait, endMs: number, signal: AbortSignal): Promise<void> {
    const everyMs = this.#stream.isTTY ? TICK_MS : PLAIN_WAIT_EVERY_MS;
    while (!signal.aborted) {
      const waitMs = Math.max(0, endMs - this.#clock.monotonicMs());
      this.#show(`waiting: ${waitText({ ...wait, waitMs })}`);
      if (waitMs <= 0 || (waitMs < everyMs && !this.#stream.isTTY)) return;
      await this.#clock.sleep(Math.min(everyMs, waitMs), signal);
    }
  }

  #show(text: string): void {
    const line = printable(this.say(text));
    if (this.#stream.isTTY) {
      const room = (this.#stream.columns ?? COLUMNS_DEFAULT) - 1;
      this.#stream.write(`\r${line.slice(0, room)}${CLEAR_TO_END}`);
      this.#shown = true;
    } else if (line !== this.#lastPlain) {
      this.#stream.write(`${line}\n`);
      this.#lastPlain = line;
    }
  }
}
