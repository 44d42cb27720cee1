import { setImmediate } from 'node:timers/promises';
import type { ChangeFault, ChangeKind, ProductChange, StockChange } from '../../domain/change/change.ts';
import type { Guard, GuardSettings, Hold } from '../../domain/change/guard-rails.ts';
import { resolveProduct } from '../../domain/change/resolve-product.ts';
import { resolveStock } from '../../domain/change/resolve-stock.ts';
import type { Resolution } from '../../domain/change/target.ts';
import type { AckResult } from '../../store/outbox/order-takings.ts';
import type { Acceptance, IntakeItem } from '../../store/outbox/outbox-intake.ts';
import type { OutboxCounts, OutboxFilter } from '../../store/outbox/outbox-queries.ts';
import type { ChangeSource, OutboxEntry } from '../../store/outbox/outbox-row.ts';
import type { MirrorStores, Stores } from '../storage/mirror-stores.ts';

/** A change as it was handed over by any way in; `reference` is what its giver knows it by. */
export type HandedOver = { reference?: string | null } & (
  | { kind: 'stock'; change: StockChange }
  | { kind: 'product'; change: ProductChange }
  | { kind: ChangeKind; fault: ChangeFault; value: unknown }
);

export interface ChangeDeskOptions {
  stores: MirrorStores;
  guards: GuardSettings;
  holdBack: boolean;
  /** Told after changes were put in line, so that they are sent soon. */
  onTaken: () => void;
}

/** Why a hand-over is held for a person: all of it, or its stocks that go to zero. */
export interface HandOverHolds {
  all?: Hold | undefined;
  zeros?: Hold | undefined;
}

export interface TakeMany {
  /** Holds all of it. */
  hold?: Hold | undefined;
  onProgress?: (done: number, total: number) => void;
}

/** Changes of one transaction. */
const PART = 500;

/** Where every way in hands changes over, and where people decide about them. */
export class ChangeDesk {
  readonly #options: ChangeDeskOptions;

  constructor(options: ChangeDeskOptions) {
    this.#options = options;
  }

  /** Takes changes in one durable transaction; one acceptance for each, in order. */
  async take(
    items: readonly HandedOver[],
    source: ChangeSource,
    holds: HandOverHolds = {},
  ): Promise<Acceptance[]> {
    const { stores, guards, holdBack, onTaken } = this.#options;
    const accepted = await stores.write((at) => {
      if (holdBack) at.takings.begin(true);
      return at.intake.accept(
        items.map((item) => this.#resolved(at, item)),
        { source, guards, hold: holds.all, zeroHold: holds.zeros },
      );
    });
    onTaken();
    return accepted;
  }

  /**
   * Takes many changes of one hand-over in transactions of 500, so that nobody waits long for the disk; the guard
   * rails judge it as a whole. When the disk refuses on the way, what was taken stays taken.
   */
  async takeMany(
    items: readonly HandedOver[],
    source: ChangeSource,
    how: TakeMany = {},
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
  async zeroHold(items: readonly HandedOver[]): Promise<Hold | undefined> {
    const { stores, guards } = this.#options;
    const zeros = items.filter((item) => item.kind === 'stock' && 'change' in item && item.change.qty === 0);
    if (guards.zeroItemsMax === 0) return undefined;
    const targets = new Set<string>();
    for (let start = 0; start < zeros.length; start += PART) {
      const part = zeros.slice(start, start + PART);
      const fresh = stores.read((at) => at.intake.freshZeros(part.map((item) => this.#resolved(at, item))));
      for (const target of fresh) targets.add(target);
      // Whoever else waits goes first.
      await setImmediate();
    }
    return stores.read(({ intake }) => intake.holdFor(targets.size, guards));
  }

  /** Takes in what orders took, so that what is read of stocks is up to date. */
  async catchUp(): Promise<void> {
    const { stores, holdBack } = this.#options;
    while (await stores.write(({ claims }) => claims.catchUp({ holdBack })));
  }

  /** Records durably that the POS has booked these orders. */
  async acknowledge(orderIds: readonly string[], source: ChangeSource): Promise<AckResult[]> {
    const { stores, onTaken } = this.#options;
    const results = await stores.write(({ takings }) => takings.acknowledge(orderIds, source));
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
    const { stores, onTaken } = this.#options;
    await stores.write((at) => at.decisions.retry(changeId, (kept) => this.resolve(at, kept)));
    onTaken();
  }

  /** Gives up a change that waits, is held or was rejected. */
  async drop(changeId: number): Promise<void> {
    const { stores, onTaken } = this.#options;
    await stores.write(({ decisions }) => decisions.drop(changeId));
    onTaken();
  }

  /** Lets held changes go; returns how many. */
  async release(which: { changeId: number } | { guard: Guard | null }): Promise<number> {
    const released = await this.#options.stores.write(({ decisions }) => decisions.release(which));
    this.#options.onTaken();
    return released;
  }

  /** Finds the target of a change in the mirror; `alreadyRead`: its product was just read from the platform. */
  resolve(
    { lookup }: Pick<Stores, 'lookup'>,
    item: { kind: 'stock'; change: StockChange } | { kind: 'product'; change: ProductChange },
    alreadyRead = false,
  ): Resolution {
    const branches = this.#options.stores.directory;
    return item.kind === 'stock'
      ? resolveStock(item.change, { catalog: lookup, branches, alreadyRead })
      : resolveProduct(item.change, { catalog: lookup, alreadyRead });
  }

  #resolved(at: Stores, item: HandedOver): IntakeItem {
    if ('fault' in item) return item;
    return item.kind === 'stock'
      ? { ...item, resolution: this.resolve(at, item) }
      : { ...item, resolution: this.resolve(at, item) };
  }
}
