import type { TokenPair, TokenStore } from '../domain/platform/tokens.ts';
import type { Clock } from '../domain/time/clock.ts';

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
