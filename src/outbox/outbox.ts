import { setImmediate } from 'node:timers/promises';
import type { HandedOver } from './change.ts';
import type { Guard, GuardReason, GuardSettings } from './guard-rails.ts';
import type { Acceptance } from './intake.ts';
import type { OutboxCounts, OutboxEntry, OutboxFilter } from './outbox-queries.ts';
import type { ChangeSource } from './queue.ts';
import type { AckResult } from './reservations.ts';
import type { MirrorStores } from './stores.ts';

export interface OutboxOptions {
  stores: MirrorStores;
  guards: GuardSettings;
  /** `stock.hold_back_unbooked`. */
  holdBack: boolean;
  /** Called after changes were put in the queue, so that they are sent soon. */
  onTaken: () => void;
}

/** Changes of one transaction. */
const PART = 500;

/** Where every way in but the inbox hands changes over, and where people decide about them. */
export class Outbox {
  readonly #options: OutboxOptions;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /**
   * Takes changes in one durable transaction; one acceptance for each, in order. `holds`: why a guard rail holds all of
   * them, or their stocks that go to zero.
   */
  async take(
    items: readonly HandedOver[],
    source: ChangeSource,
    holds: { all?: GuardReason | undefined; zeros?: GuardReason | undefined } = {},
  ): Promise<Acceptance[]> {
    const { stores, guards, holdBack, onTaken } = this.#options;
    const accepted = await stores.write(({ reservations, intake }) => {
      if (holdBack) reservations.begin(true);
      return intake.accept(items, { source, guards, hold: holds.all, zeroHold: holds.zeros });
    });
    onTaken();
    return accepted;
  }

  /**
   * Takes many changes of one hand-over in transactions of 500, so that nobody waits long for the disk; the guard
   * rails judge it as a whole. When the disk refuses on the way, what was taken stays taken. `hold`: why all of it is
   * held.
   */
  async takeMany(
    items: readonly HandedOver[],
    source: ChangeSource,
    how: { hold?: GuardReason | undefined; onProgress?: (done: number, total: number) => void } = {},
  ): Promise<Acceptance[]> {
    const { hold: all, onProgress } = how;
    const zeros = items.length > PART ? await this.zeroHold(items) : undefined;
    const accepted: Acceptance[] = [];
    for (let start = 0; start < items.length; start += PART) {
      accepted.push(...(await this.take(items.slice(start, start + PART), source, { all, zeros })));
      onProgress?.(accepted.length, items.length);
    }
    return accepted;
  }

  /** Why the stocks that go to zero would be held, were all of `items` handed over at once. */
  async zeroHold(items: readonly HandedOver[]): Promise<GuardReason | undefined> {
    const { stores, guards } = this.#options;
    if (guards.zeroItemsMax === 0) return undefined;
    const zeros = items.filter((item) => item.kind === 'stock' && 'change' in item && item.change.qty === 0);
    const targets = new Set<string>();
    for (let start = 0; start < zeros.length; start += PART) {
      const part = zeros.slice(start, start + PART);
      for (const target of stores.read(({ intake }) => intake.freshZeros(part))) targets.add(target);
      // Whoever else waits goes first.
      await setImmediate();
    }
    return stores.read(({ intake }) => intake.holdFor(targets.size, guards));
  }

  /** Takes in what orders took, so that what is read of stocks is up to date. */
  async catchUp(): Promise<void> {
    const { stores, holdBack } = this.#options;
    while (await stores.write(({ calls }) => calls.catchUp({ holdBack })));
  }

  /** Records durably that the POS has booked these orders. */
  async acknowledge(orderIds: readonly string[], source: ChangeSource): Promise<AckResult[]> {
    const { stores, onTaken } = this.#options;
    const results = await stores.write(({ reservations }) => reservations.acknowledge(orderIds, source));
    onTaken();
    return results;
  }

  list(filter: OutboxFilter): OutboxEntry[] {
    return this.#options.stores.read(({ queries }) => queries.list(filter));
  }

  get(changeId: number): OutboxEntry | undefined {
    return this.#options.stores.read(({ queries }) => queries.get(changeId));
  }

  /** The change itself, or the one that took its place in the end. */
  follow(changeId: number): OutboxEntry | undefined {
    return this.#options.stores.read(({ queries }) => queries.follow(changeId));
  }

  counts(): OutboxCounts {
    return this.#options.stores.read(({ queries }) => queries.counts());
  }

  /** Hands a rejected change over once more, as a new one. */
  async retry(changeId: number): Promise<void> {
    await this.#options.stores.write(({ decisions }) => decisions.retry(changeId));
    this.#options.onTaken();
  }

  /** Gives up a change that waits, is held by a guard or was rejected. */
  async drop(changeId: number): Promise<void> {
    await this.#options.stores.write(({ decisions }) => decisions.drop(changeId));
    this.#options.onTaken();
  }

  /** Lets changes go that a guard rail holds; returns how many. */
  async release(which: { changeId: number } | { guard: Guard | null }): Promise<number> {
    const released = await this.#options.stores.write(({ decisions }) => decisions.release(which));
    this.#options.onTaken();
    return released;
  }
}
