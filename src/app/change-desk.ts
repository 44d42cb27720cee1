import { setImmediate } from 'node:timers/promises';
import type { ChangeFault, ChangeKind, ProductChange, Resolution, StockChange } from '../outbox/change.ts';
import type { KeptChange } from '../outbox/decisions.ts';
import type { Guard, GuardSettings, Hold } from '../outbox/guard-rails.ts';
import type { Acceptance, IntakeItem } from '../outbox/intake.ts';
import type { Unresolved, UnresolvedChanges } from '../outbox/maintenance.ts';
import type { AckResult } from '../outbox/order-takings.ts';
import type { OutboxCounts, OutboxFilter } from '../outbox/outbox-queries.ts';
import type { ChangeSource, OutboxEntry } from '../outbox/queue.ts';
import { resolveProduct, resolveStock } from '../outbox/resolve.ts';
import type { MirrorStores, Stores } from './stores.ts';

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

/** How long after its beginning a whole reading of the catalogue speaks for changes that are handed over. */
const CATALOG_SPEAKS_MS = 15 * 60_000;
/** Changes looked at in one transaction. */
const UNRESOLVED_PART = 200;

/** Changes whose product the mirror does not know, as the reader of products wants them. */
export function unresolvedChanges(
  stores: MirrorStores,
  desk: ChangeDesk,
  { readsCatalog }: { readsCatalog: boolean },
): UnresolvedChanges {
  return {
    count: () => stores.read(({ decisions }) => decisions.countUnresolved('needs-read')),
    next: (passedOver) => stores.write((at) => nextUnresolved(at, desk, passedOver)),
    readMark: () => stores.read(({ catalog }) => catalog.readMark()),
    resolved: (changeId, record, mark) =>
      stores.write((at) => {
        if (record) at.catalog.applyRead(record, mark);
        const kept = at.decisions.unresolved('needs-read', { after: changeId - 1, limit: 1 })[0];
        if (kept?.changeId === changeId) at.decisions.retarget(kept, desk.resolve(at, kept, true));
      }),
    async judgeByCatalog() {
      const sweptMs = stores.read(({ lookup }) => lookup.sweptMs);
      // The first reading comes by itself, and without branches there is none.
      if (sweptMs === undefined) return true;
      const handedOverUntilMs = readsCatalog ? sweptMs + CATALOG_SPEAKS_MS : undefined;
      let after = 0;
      for (;;) {
        const last = await stores.write((at) => {
          const part = {
            after,
            limit: UNRESOLVED_PART,
            ...(handedOverUntilMs !== undefined && { handedOverUntilMs }),
          };
          const kept = at.decisions.unresolved('needs-read', part);
          for (const each of kept) at.decisions.retarget(each, byCatalog(desk.resolve(at, each, true), each));
          return kept.at(-1)?.changeId;
        });
        if (last === undefined) break;
        after = last;
      }
      return stores.read(({ decisions }) => decisions.countUnresolved('needs-read')) === 0;
    },
  };
}

/** When the oldest of the branches' last whole readings began; undefined while one was never read. */
function nextUnresolved(
  at: Stores,
  desk: ChangeDesk,
  passedOver: ReadonlySet<number>,
): Unresolved | undefined {
  for (const kept of at.decisions.unresolved('needs-read', { limit: UNRESOLVED_PART })) {
    const resolution = desk.resolve(at, kept);
    if (resolution.state === 'needs-read') {
      if (passedOver.has(kept.changeId)) continue;
      return { changeId: kept.changeId, query: resolution.query };
    }
    at.decisions.retarget(kept, resolution);
  }
  return undefined;
}

function byCatalog(resolution: Resolution, { change }: KeptChange): Resolution {
  if (resolution.state !== 'rejected' || resolution.code !== 'unknown-product') return resolution;
  const name = change.externalId === undefined ? `sku ${change.sku}` : `externalId ${change.externalId}`;
  return { ...resolution, message: `No configured branch lists a product with ${name}.` };
}
