import type { ServerResponse } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { TillsyncError } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import { sharerOf } from './access.ts';

interface PlacesOptions {
  /** Maximum number of places that are taken at the same time. */
  max: number;
  /** Of these, maximum for one named key or address. */
  ofOne: number;
  /** Maximum number of requests that wait for a place; 0 if left out. */
  waitingMax?: number;
  /** What takes the places, and what it means for who is refused. */
  words: { taken: string; refused?: string; hint: string };
}

/** Greatest share of all connections that one named key or address may hold open. */
const SHARE = 0.4;

/** Returns how many of `max` connections one named key or address may hold open. */
export function shareOf(max: number): number {
  return Math.ceil(max * SHARE);
}

interface Waiting {
  who: string;
  begin: () => void;
}

/** Limits how many requests are handled at the same time: in total, and for each named key or address. */
export class Places {
  readonly #options: PlacesOptions;
  readonly #of = new Map<string, number>();
  readonly #line: Waiting[] = [];
  #taken = 0;

  constructor(options: PlacesOptions) {
    this.#options = options;
  }

  /**
   * Takes a place. Returns a function that gives it back, which must be called once. Throws `rate-limited` if none is
   * free.
   */
  enter(request: FastifyRequest): () => void {
    const who = sharerOf(request);
    if (!this.#isFree(who)) throw this.#refusal(who);
    return this.#take(who);
  }

  /** Runs the action in a place. Throws `rate-limited` if none is free. */
  async within<T>(request: FastifyRequest, action: () => Promise<T>): Promise<T> {
    const leave = this.enter(request);
    try {
      return await action();
    } finally {
      leave();
    }
  }

  /**
   * The same as `enter`, but waits until a place is free. Who has the fewest places comes first. Throws `rate-limited`
   * if too many wait, and `aborted` if the client leaves.
   */
  async turn(request: FastifyRequest, left: AbortSignal): Promise<() => void> {
    const who = sharerOf(request);
    const line = this.#line;
    if (this.#isFree(who) && !line.some((other) => this.#isFree(other.who))) return this.#take(who);
    const { waitingMax = 0 } = this.#options;
    const ofOne = line.filter((other) => other.who === who).length;
    if (line.length >= waitingMax || ofOne >= shareOf(waitingMax)) throw this.#refusal(who);
    return await new Promise((resolve, reject) => {
      const waiting = {
        who,
        begin: () => {
          left.removeEventListener('abort', leave);
          resolve(this.#take(who));
        },
      };
      const leave = () => {
        line.splice(line.indexOf(waiting), 1);
        reject(new TillsyncError('aborted', 'The client left before its turn.'));
      };
      left.addEventListener('abort', leave, { once: true });
      line.push(waiting);
    });
  }

  #isFree(who: string): boolean {
    return this.#taken < this.#options.max && this.#ofOne(who) < this.#options.ofOne;
  }

  #ofOne(who: string): number {
    return this.#of.get(who) ?? 0;
  }

  #take(who: string): () => void {
    this.#taken += 1;
    this.#of.set(who, this.#ofOne(who) + 1);
    return () => {
      this.#taken -= 1;
      const rest = this.#ofOne(who) - 1;
      if (rest === 0) this.#of.delete(who);
      else this.#of.set(who, rest);
      // Callbacks and other requests get their turn between two places.
      if (this.#line.length > 0) setImmediate(this.#callNext);
    };
  }

  readonly #callNext = (): void => {
    const free = this.#line.filter(({ who }) => this.#isFree(who));
    const fewest = Math.min(...free.map(({ who }) => this.#ofOne(who)));
    const next = free.find(({ who }) => this.#ofOne(who) === fewest);
    if (next === undefined) return;
    this.#line.splice(this.#line.indexOf(next), 1);
    next.begin();
  };

  #refusal(who: string): TillsyncError {
    const { max, words } = this.#options;
    const { taken, refused = '', hint } = words;
    const isAll = this.#taken >= max;
    const all = isAll ? '' : who.startsWith(KEY) ? ', all with this key' : ', all from this address';
    const count = isAll ? max : this.#ofOne(who);
    return new TillsyncError('rate-limited', `${count} ${taken}${all}.${refused}`, { hint });
  }
}

const KEY = 'key ';

/** Time without progress after which a reader is disconnected. It can ask again for what it lacks. */
export const STALL_MS = 60_000;

const READS = { max: 4, ofOne: 2, waitingMax: 50 };

/** Waits until the next part of a large answer may be made. */
export type PartTurn = () => Promise<void>;

/**
 * Limits how many large answers are made and sent at the same time. A turn of the event loop makes a part of one of
 * them, so that a callback, which takes several turns, never waits for a part of each.
 */
export class ReadingPlaces {
  readonly #clock: Clock;
  readonly #parts: (() => void)[] = [];
  readonly #places = new Places({
    ...READS,
    words: {
      taken: 'large answers are under way',
      hint: 'Ask again after Retry-After, one request after the other.',
    },
  });

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Waits for a place, which the request then holds until its answer has left or its client is gone. A client that
   * takes nothing of the answer for `STALL_MS` is disconnected. Throws `rate-limited`, or `aborted` if the client is
   * gone. The answer's maker awaits the returned function before each part.
   */
  async take(request: FastifyRequest, response: ServerResponse): Promise<PartTurn> {
    const left = new AbortController();
    const leave = () => left.abort();
    response.once('close', leave);
    const giveBack = await this.#places.turn(request, left.signal);
    left.signal.addEventListener('abort', giveBack, { once: true });
    void this.#endIfStalled(response, left.signal);
    return this.#nextPart;
  }

  readonly #nextPart: PartTurn = () =>
    new Promise((resolve) => {
      if (this.#parts.push(resolve) === 1) setImmediate(this.#makeOne);
    });

  readonly #makeOne = (): void => {
    this.#parts.shift()?.();
    if (this.#parts.length > 0) setImmediate(this.#makeOne);
  };

  async #endIfStalled(response: ServerResponse, left: AbortSignal): Promise<void> {
    for (let before = -1; !left.aborted; ) {
      const { bytesWritten = 0 } = response.socket ?? {};
      if (bytesWritten === before) {
        response.destroy();
        return;
      }
      before = bytesWritten;
      await this.#clock.sleep(STALL_MS, left);
    }
  }
}
