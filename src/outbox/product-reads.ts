import type { ReadMark } from '../catalog/sweep.ts';
import { hasCode } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { PlatformClient } from '../platform/client.ts';
import type { CallOptions } from '../platform/platform.ts';
import type { ProductRecord } from '../platform/schemas.ts';
import type { Change, ProductQuery, Resolution } from './change.ts';
import { isRefusal } from './push-call.ts';
import type { MirrorStores, Stores } from './repositories.ts';
import type { StockKey } from './stock-ledger.ts';

/**
 * If more products than this are unknown, they are not asked for one by one, because a sweep needs fewer
 * calls.
 */
const ASK_MAX = 100;
const REFUSALS_MAX = 3;
/** A sweep is evidence for changes submitted up to this long after its start. */
const CATALOG_SPEAKS_MS = 15 * 60_000;
/** Changes examined per transaction. */
const PART = 200;

export interface ProductReadsOptions {
  stores: MirrorStores;
  platform: Pick<PlatformClient, 'productGet'>;
  /** Requests a sweep soon; many requests cause one sweep. Left out if nothing sweeps. */
  wantCatalog?: (() => void) | undefined;
  /** Called when something was queued. */
  onQueued: () => void;
  clock: Clock;
}

/**
 * Finds products that changes name and the mirror does not know. An unreadable answer puts its change behind the
 * others; a product that the platform refuses repeatedly counts as unknown.
 */
export class ProductReads {
  readonly #options: ProductReadsOptions;
  readonly #passedOver = new Set<number>();
  readonly #refusals = new Map<number, number>();

  constructor(options: ProductReadsOptions) {
    this.#options = options;
  }

  /**
   * Reads one product, or requests a sweep when many wait. Returns whether more may wait. Throws what a call throws.
   */
  async step(call: CallOptions): Promise<boolean> {
    const { platform, wantCatalog, onQueued } = this.#options;
    if (this.count() > ASK_MAX && !(await this.judgeByCatalog())) wantCatalog?.();
    if (this.count() === 0) return false;
    const next = await this.next(this.#passedOver);
    if (!next) {
      this.#passedOver.clear();
      onQueued();
      return false;
    }
    const { changeId, query } = next;
    let mark = this.#readMark();
    const onSend = () => {
      mark = this.#readMark();
    };
    let record: ProductRecord | null = null;
    try {
      record = await platform.productGet(query, { ...call, onSend });
    } catch (error) {
      if (hasCode(error, 'platform-refused', 'platform-garbled', 'platform-failed'))
        this.#passedOver.add(changeId);
      if (!isRefusal(error) || !this.#isGivenUp(changeId)) throw error;
    }
    await this.resolved(changeId, record, mark);
    this.#refusals.delete(changeId);
    onQueued();
    return true;
  }

  count(): number {
    return this.#options.stores.read(({ decisions }) => decisions.countUnresolved('needs-read'));
  }

  /**
   * Returns the oldest waiting change not in `passedOver`. Changes that the mirror can resolve by now are moved on
   * the way.
   */
  next(passedOver: ReadonlySet<number>): Promise<{ changeId: number; query: ProductQuery } | undefined> {
    return this.#options.stores.write(({ decisions, intake }) => {
      for (const kept of decisions.unresolved('needs-read', { limit: PART })) {
        const { changeId } = kept;
        const resolution = intake.resolve(kept);
        if (resolution.state !== 'needs-read') decisions.retarget(kept, resolution);
        else if (!passedOver.has(changeId)) return { changeId, query: resolution.query };
      }
      return undefined;
    });
  }

  /** Mirrors the platform's answer for a product and resolves the change. */
  async resolved(changeId: number, record: ProductRecord | null, mark: ReadMark): Promise<void> {
    await this.#options.stores.write(({ catalog, decisions, intake }) => {
      if (record) catalog.applyRead(record, mark);
      const [kept] = decisions.unresolved('needs-read', { after: changeId - 1, limit: 1 });
      if (kept?.changeId === changeId) decisions.retarget(kept, intake.resolve(kept, true));
    });
  }

  /**
   * Rejects changes whose product no branch listed in a recent enough sweep. Returns false while some changes
   * wait for a new sweep, and true if no sweep is possible.
   */
  async judgeByCatalog(): Promise<boolean> {
    const { stores, wantCatalog, clock } = this.#options;
    const sweptMs = stores.read(({ lookup }) => lookup.sweptMs);
    // The first sweep starts by itself. Without branches there is no sweep.
    if (sweptMs === undefined) return true;
    // The last sweep is dated by a clock that was ahead, so it is unknown which changes came after it.
    if (wantCatalog && sweptMs > clock.nowMs()) return false;
    const handedOverUntilMs = wantCatalog ? sweptMs + CATALOG_SPEAKS_MS : undefined;
    let last: number | undefined = 0;
    while (last !== undefined) {
      const after: number = last;
      last = await stores.write((at) => {
        const kept = at.decisions.unresolved('needs-read', { after, handedOverUntilMs, limit: PART });
        for (const each of kept) at.decisions.retarget(each, byCatalog(at, each));
        return kept.at(-1)?.changeId;
      });
    }
    return this.count() === 0;
  }

  #readMark(): ReadMark {
    return this.#options.stores.read(({ catalog }) => catalog.readMark());
  }

  #isGivenUp(changeId: number): boolean {
    const refusals = (this.#refusals.get(changeId) ?? 0) + 1;
    this.#refusals.set(changeId, refusals);
    return refusals >= REFUSALS_MAX;
  }
}

function byCatalog({ intake }: Stores, kept: Change): Resolution {
  const resolution = intake.resolve(kept, true);
  if (resolution.state !== 'rejected' || resolution.code !== 'unknown-product') return resolution;
  const { externalId, sku } = kept.change;
  const name = externalId === undefined ? `sku ${sku}` : `externalId ${externalId}`;
  return { ...resolution, message: `No configured branch lists a product with ${name}.` };
}

/**
 * More scarce counts than this are an inventory, which is sent without reads of the platform; the next sweep compares
 * all of it.
 */
const LOOKS_MAX = 30;
/** Total time of such reads in a row. */
const LOOKING_MAX_MS = 60_000;

interface LookerOptions {
  stores: MirrorStores;
  platform: Pick<PlatformClient, 'productGet'>;
  /** `stock.look_below`; 0: never. */
  lookBelow: number;
  /** Whether orders come only by polls, and so late. */
  isHeardLate: () => boolean;
  clock: Clock;
}

/**
 * Reads scarce stocks on the platform before their counts are sent, because an order that has not come yet may have
 * taken pieces.
 */
export class StockLooker {
  readonly #options: LookerOptions;
  #offUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: LookerOptions) {
    this.#options = options;
  }

  /** Counts up to this quantity wait for a read of the platform; 0 if none waits. */
  get lookBelow(): number {
    const { lookBelow, isHeardLate, clock } = this.#options;
    return lookBelow > 0 && clock.monotonicMs() >= this.#offUntilMonoMs && isHeardLate() ? lookBelow : 0;
  }

  /**
   * Reads the stocks and stops as soon as `isUrgent` returns true. Throws call errors that do not concern one product.
   */
  async look(places: readonly StockKey[], call: CallOptions, isUrgent: () => boolean): Promise<void> {
    const { clock } = this.#options;
    const endMonoMs = clock.monotonicMs() + LOOKING_MAX_MS;
    if (places.length > LOOKS_MAX) {
      this.#offUntilMonoMs = endMonoMs;
      return;
    }
    for (const place of places) {
      if (isUrgent()) return;
      if (clock.monotonicMs() >= endMonoMs) {
        this.#offUntilMonoMs = clock.monotonicMs() + LOOKING_MAX_MS;
        return;
      }
      await this.#lookAt(place, call);
    }
  }

  async #lookAt(place: StockKey, call: CallOptions): Promise<void> {
    const { stores, platform } = this.#options;
    const readMark = (): ReadMark => stores.read(({ catalog }) => catalog.readMark());
    let mark = readMark();
    const onSend = () => {
      mark = readMark();
    };
    let record: Awaited<ReturnType<PlatformClient['productGet']>>;
    try {
      record = await platform.productGet({ sku: place.sku }, { ...call, onSend });
    } catch (error) {
      if (!hasCode(error, 'platform-refused', 'platform-garbled', 'platform-failed')) throw error;
      record = null;
    }
    const shown = record;
    await stores.write(({ catalog, looks }) => {
      if (shown) looks.note(place, () => catalog.applyRead(shown, mark));
      else looks.noteRefused(place);
    });
  }
}
