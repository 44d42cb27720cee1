import type { ServerResponse } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { refuseWithdrawnKey } from './access.ts';
import type { LocalApiOptions } from './api.ts';
import { Places, shareOf } from './places.ts';

/** Interval of reads while a request waits, because another process may change the mirror without a notification. */
export const LOOK_EVERY_MS = 1_000;
export const STREAMS_MAX = 50;

/** Result of one read. `isBehind` is true if the read ended before it had searched all rows. */
export interface Look {
  isEmpty: boolean;
  isBehind?: boolean;
}

interface Held {
  response: ServerResponse;
  waitMs: number;
  lookEveryMs?: number;
}

/** Holds requests open until the mirror changes. Each request holds a connection. */
export class LongPolls {
  readonly #options: Pick<LocalApiOptions, 'clock' | 'changes'>;
  readonly #closing = new AbortController();
  readonly #places: Places;

  constructor(options: Pick<LocalApiOptions, 'clock' | 'changes' | 'streamsMax'>) {
    this.#options = options;
    const max = options.streamsMax ?? STREAMS_MAX;
    this.#places = new Places({
      max,
      ofOne: shareOf(max),
      words: {
        taken: 'requests wait for an event already',
        hint: 'Ask without wait, or let one program ask for all.',
      },
    });
  }

  /** Answers all waiting requests when the server begins to close. */
  endWith(app: FastifyInstance): void {
    app.addHook('preClose', (done) => {
      this.#closing.abort();
      done();
    });
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Counts a connection before `until` is called. Returns a function that must be called when the connection ends.
   * Throws `rate-limited` if too many connections are open.
   */
  enter(request: FastifyRequest): () => void {
    return this.#places.enter(request);
  }

  /** The same as `until`, within the limits of connections. Throws `unauthorized` if the request's key was withdrawn. */
  async wait<T extends Look>(held: Held & { request: FastifyRequest }, read: () => Promise<T>): Promise<T> {
    const leave = this.enter(held.request);
    try {
      return await this.until(held, () => {
        refuseWithdrawnKey(held.request);
        return read();
      });
    } finally {
      leave();
    }
  }

  /**
   * Reads again after each change, until a read finds something, the time is over, the client disconnects, or the
   * server closes.
   */
  async until<T extends Look>(
    { response, waitMs, lookEveryMs = LOOK_EVERY_MS }: Held,
    read: () => Promise<T>,
  ): Promise<T> {
    const { clock, changes } = this.#options;
    let woken = new AbortController();
    const wake = () => woken.abort();
    const unsubscribe = changes.subscribe(wake);
    response.on('close', wake);
    this.closing.addEventListener('abort', wake);
    const endMs = clock.monotonicMs() + waitMs;
    try {
      for (;;) {
        woken = new AbortController();
        const look = await read();
        const restMs = endMs - clock.monotonicMs();
        // Without this header the connection would stay open and idle, and delay the closing of the server.
        if (this.closing.aborted) response.setHeader('connection', 'close');
        if (!look.isEmpty || restMs <= 0 || this.closing.aborted || response.destroyed) return look;
        // Other requests and timers get their turn between the parts of a long search.
        if (look.isBehind) await setImmediate();
        else await clock.sleep(Math.min(restMs, lookEveryMs), woken.signal);
      }
    } finally {
      unsubscribe();
      response.off('close', wake);
      this.closing.removeEventListener('abort', wake);
    }
  }
}
