import type { ServerResponse } from 'node:http';
import { whenFree } from '../domain/busy.ts';
import type { Clock } from '../domain/time/clock.ts';
import { type FeedEvent, type OrderSource, readFeed } from './order-feed.ts';

/** Another process may write the mirror, of which nobody here is told. */
const LOOK_EVERY_MS = 1_000;
const HEARTBEAT_MS = 15_000;
/** A reader that takes nothing for so long is cut off; it comes back with its Last-Event-ID. */
const STALL_MS = 60_000;
const RETRY_MS = 2_000;
/** Events read at once: what one slow reader can make us hold. */
const PAGE = 25;

export interface EventStreamOptions {
  source: OrderSource;
  clock: Clock;
  /** Told when the mirror may have changed; returns what ends it. */
  onChange: (listener: () => void) => () => void;
  response: ServerResponse;
  /** Events with a higher seq come. */
  after: number;
  /** Ends the stream, its reader may come back. */
  signal: AbortSignal;
}

/**
 * Writes the change feed to one reader until it leaves or the signal: no event twice, none left out. Reads on
 * only when the reader has taken what was written. Ends when the feed begins anew under it.
 */
export async function streamEvents(options: EventStreamOptions): Promise<void> {
  const { source, clock, response } = options;
  const reader = new StreamReader(options);
  try {
    await reader.write(`retry: ${RETRY_MS}\n\n`);
    let { after } = options;
    let quietSinceMs = clock.monotonicMs();
    while (!reader.ended) {
      reader.arm();
      const events = await whenFree(clock, () => readFeed(source, after, PAGE));
      if (events.length > 0) {
        after = events.at(-1)?.seq ?? after;
        await reader.write(events.map(eventText).join(''));
        quietSinceMs = clock.monotonicMs();
        continue;
      }
      if (source.newestSeq() < after) break;
      if (clock.monotonicMs() - quietSinceMs >= HEARTBEAT_MS) {
        await reader.write(': still here\n\n');
        quietSinceMs = clock.monotonicMs();
      }
      await reader.wait(LOOK_EVERY_MS);
    }
  } finally {
    reader.release();
    response.end();
  }
}

function eventText(event: FeedEvent): string {
  return `id: ${event.seq}\nevent: order\ndata: ${JSON.stringify(event)}\n\n`;
}

/** One reader and the one wait of its stream, ended by a change, by room to write, or by the end. */
class StreamReader {
  readonly #options: EventStreamOptions;
  readonly #unsubscribe: () => void;
  #woken = new AbortController();
  #left = false;

  constructor(options: EventStreamOptions) {
    this.#options = options;
    this.#unsubscribe = options.onChange(this.#wake);
    options.signal.addEventListener('abort', this.#wake);
    options.response.on('drain', this.#wake).on('close', this.#leave).on('error', this.#leave);
  }

  get ended(): boolean {
    return this.#left || this.#options.signal.aborted;
  }

  /** To be called before looking for something to do: what comes from now on ends the next wait. */
  arm(): void {
    if (this.#woken.signal.aborted) this.#woken = new AbortController();
  }

  wait(ms: number): Promise<void> {
    return this.ended ? Promise.resolve() : this.#options.clock.sleep(ms, this.#woken.signal);
  }

  /** Resolves when the reader has room for more; one that stalls is cut off. */
  async write(text: string): Promise<void> {
    const { response, clock } = this.#options;
    if (this.ended || response.write(text)) return;
    const endMs = clock.monotonicMs() + STALL_MS;
    for (;;) {
      this.arm();
      if (this.ended || !response.writableNeedDrain) return;
      const restMs = endMs - clock.monotonicMs();
      if (restMs <= 0) response.destroy();
      await this.wait(restMs);
    }
  }

  release(): void {
    this.#unsubscribe();
    this.#options.signal.removeEventListener('abort', this.#wake);
    this.#options.response.off('drain', this.#wake);
  }

  readonly #wake = (): void => {
    this.#woken.abort();
  };

  readonly #leave = (): void => {
    this.#left = true;
    this.#woken.abort();
  };
}
