import { hasCode } from '../../../src/core/errors.ts';
import type { SimulatedStore } from './simulated-store.ts';

const LOOK_EVERY_MS = 1_800_000;

/** The person who maintains the store and follows tillsync's remedies, some time later. */
export class Operator {
  /** Number of token pairs that were handed in after the first one. */
  handOvers = 0;
  readonly #store: SimulatedStore;

  constructor(store: SimulatedStore) {
    this.#store = store;
  }

  async watch(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#store.world.sleep(LOOK_EVERY_MS, signal);
      await this.look();
    }
  }

  async look(): Promise<void> {
    const services = this.#store.daemon?.services;
    if (!services) return;
    try {
      if (services.platform.tokens.describe().state !== 'ok') {
        this.handOvers += 1;
        const { refreshToken } = this.#store.sandbox.issueTokens();
        await services.platform.tokens.set({ refreshToken });
      }
      const { outbox } = services;
      if (outbox.counts().held > 0) await outbox.release({ guard: null }, 'cli ana');
      for (const { changeId } of outbox.list({ state: 'rejected', limit: 1000 }).reverse()) {
        await outbox.retry(changeId, 'cli ana').catch((error: unknown) => {
          // A newer change of the same value is on its way.
          if (!hasCode(error, 'conflict')) throw error;
        });
      }
    } catch (error) {
      // The store was stopped meanwhile.
      if (!hasCode(error, 'aborted')) throw error;
    }
  }
}
