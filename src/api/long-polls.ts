import type { ServerResponse } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import { addressOf, refuseWithdrawnKey } from './access.ts';
import type { LocalApiOptions } from './api.ts';

/** Interval of reads while a request waits, because another process may change the mirror without a notification. */
export const LOOK_EVERY_MS = 1_000;
export const STREAMS_MAX = 50;

/** Result of one read. `isBehind` is true if the read ended before it had searched all rows. */
export interface Look {
  isEmpty: boolean;
  isBehind?: boolean;
  text: string;
}

/** Greatest share of all connections that one address may hold open. */
const ADDRESS_SHARE = 0.4;

/** Limits the connections that are held open: in total, and for each address. */
export class AddressShares {
  readonly #max: number;
  readonly #told: { words: string; hint: string };
  readonly #of = new Map<string, number>();
  #open = 0;

  constructor(max: number, told: { words: string; hint: string }) {
    this.#max = max;
    this.#told = told;
  }

  /**
   * Counts a connection of this address. Returns a function that must be called when the connection ends. Throws
   * `rate-limited` if too many connections are open.
   */
  enter(from: string): () => void {
    const { words, hint } = this.#told;
    const ofAddress = this.#of.get(from) ?? 0;
    if (this.#open >= this.#max) throw new TillsyncError('rate-limited', `${this.#max} ${words}.`, { hint });
    if (ofAddress >= Math.ceil(this.#max * ADDRESS_SHARE)) {
      throw new TillsyncError('rate-limited', `${ofAddress} ${words}, all from this address.`, { hint });
    }
    this.#open += 1;
    this.#of.set(from, ofAddress + 1);
    return () => {
      this.#open -= 1;
      const left = (this.#of.get(from) ?? 1) - 1;
      if (left === 0) this.#of.delete(from);
      else this.#of.set(from, left);
    };
  }
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
  readonly #shares: AddressShares;

  constructor(options: Pick<LocalApiOptions, 'clock' | 'changes' | 'streamsMax'>) {
    this.#options = options;
    this.#shares = new AddressShares(options.streamsMax ?? STREAMS_MAX, {
      words: 'requests wait for an event already',
      hint: 'Ask without wait, or let one program ask for all.',
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
  enter(from: string): () => void {
    return this.#shares.enter(from);
  }

  /** The same as `until`, within the limits of connections. Throws `unauthorized` if the request's key was withdrawn. */
  async wait<T extends Look>(held: Held & { request: FastifyRequest }, read: () => Promise<T>): Promise<T> {
    const leave = this.enter(addressOf(held.request));
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
