import { createHash, randomBytes } from 'node:crypto';
import { whenFree } from '../domain/busy.ts';
import type { WebhookMemory, WebhookMemoryStore } from '../domain/platform/webhook-memory.ts';
import type { Clock } from '../domain/time/clock.ts';

/** How long the receiver may go on with what it last read of the secrets. */
export const SECRETS_CACHE_MS = 250;
/** How long a secret that was rotated out is still accepted, for notifications already on their way. */
const PREVIOUS_VALID_MS = 3_600_000;
/** Rotations without an answer whose secrets are all still accepted. */
const PENDING_MAX = 8;

export interface WebhookSecretsOptions {
  /** From credentials, environment: the current one, and during a rotation by hand the previous one. */
  handedIn: readonly string[];
  store: WebhookMemoryStore;
  clock: Clock;
}

/**
 * The secrets that a callback may carry. One rotated by tillsync wins over the one handed in at first, until a
 * different one is handed in. While a rotation is under way both are valid, whatever the platform's answer was.
 */
export class WebhookSecrets {
  readonly #options: WebhookSecretsOptions;
  #cached: readonly string[] = [];
  #cachedUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: WebhookSecretsOptions) {
    this.#options = options;
  }

  /** Every secret that is valid now; empty when none is configured. */
  accepted(): readonly string[] {
    const { clock, store } = this.#options;
    if (clock.monotonicMs() < this.#cachedUntilMonoMs) return this.#cached;
    try {
      this.#cached = this.#acceptedOf(store.read());
    } catch (error) {
      // With state.db out of reach for a moment, what was last read stays valid.
      if (this.#cached.length === 0) throw error;
    }
    this.#cachedUntilMonoMs = clock.monotonicMs() + SECRETS_CACHE_MS;
    return this.#cached;
  }

  /** The one to register with the platform. */
  current(): string | undefined {
    const memory = this.#options.store.read();
    return this.#rotatedHere(memory) ? (memory.current ?? undefined) : this.#options.handedIn[0];
  }

  /**
   * Makes a new secret and accepts it from now on, before the platform hears of it. What was registered before is
   * in doubt from here on: unless this ends well, the next start registers anew.
   */
  async begin(): Promise<string> {
    const secret = randomBytes(32).toString('base64url');
    const { store, clock } = this.#options;
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        pending: [...memory.pending, secret].slice(-PENDING_MAX),
        registered: null,
      })),
    );
    return secret;
  }

  /** The platform has the pending secret; the one before it stays valid for an hour. */
  async commit(secret: string): Promise<void> {
    const { store, clock, handedIn } = this.#options;
    const before = this.current() ?? null;
    await whenFree(clock, () =>
      store.update((memory) => ({
        ...memory,
        current: secret,
        previous: before,
        previousUntilMs: clock.nowMs() + PREVIOUS_VALID_MS,
        // One that began later has yet to hear from the platform.
        pending: memory.pending.slice(memory.pending.indexOf(secret) + 1),
        handedInDigest: handedIn[0] === undefined ? null : digest(handedIn[0]),
      })),
    );
    this.#cachedUntilMonoMs = Number.NEGATIVE_INFINITY;
  }

  #rotatedHere(memory: WebhookMemory): boolean {
    const handedIn = this.#options.handedIn[0];
    if (memory.current === null) return false;
    return handedIn === undefined || memory.handedInDigest === digest(handedIn);
  }

  #acceptedOf(memory: WebhookMemory): string[] {
    const { handedIn, clock } = this.#options;
    const previousValid = memory.previousUntilMs !== null && clock.nowMs() < memory.previousUntilMs;
    const settled = this.#rotatedHere(memory)
      ? [memory.current, previousValid ? memory.previous : null, ...handedIn.slice(1)]
      : handedIn;
    const all = [...settled, ...memory.pending];
    return [...new Set(all.filter((secret) => secret !== null))];
  }
}

/** SHA-256 in hex: tells two secrets apart without keeping either. */
export function digest(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
