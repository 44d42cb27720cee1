import type { ReadMark } from '../../catalog/sweep.ts';
import { hasCode } from '../../core/errors.ts';
import type { Clock } from '../../core/time.ts';
import type { PlatformClient } from '../../platform/client.ts';
import type { CallOptions } from '../../platform/platform.ts';
import type { ProductRecord } from '../../platform/schemas.ts';
import type { Change, ProductQuery, Resolution } from '../intake/change.ts';
import { twinsText } from '../intake/resolve.ts';
import type { StockKey } from '../ledger/stock-ledger.ts';
import { isRefusal } from './push-loop.ts';
import type { MirrorStores, Stores } from './repositories.ts';

/** If more products than this are unknown, a sweep is requested too, because it needs fewer calls than single reads. */
const ASK_MAX = 100;
const REFUSALS_MAX = 3;
/** For changes submitted up to this long after the start of a sweep, a product that the sweep lacks does not exist. */
const CATALOG_SPEAKS_MS = 15 * 60_000;
/** Maximum number of changes examined per transaction. */
const PART = 200;

export interface ProductReadsOptions {
  stores: MirrorStores;
  platform: Pick<PlatformClient, 'productGet'>;
  /** Requests a sweep soon; several requests cause one sweep. Left out if no sweep is possible. */
  wantCatalog?: (() => void) | undefined;
  /** Called when changes may have become ready to be sent. */
  onQueued: () => void;
  clock: Clock;
}

/**
 * Reads products that the mirror does not know and that a change refers to. If an answer is unreadable, the change
 * waits behind the others. A product that the platform refuses three times counts as unknown.
 */
export class ProductReads {
  readonly #options: ProductReadsOptions;
  readonly #passedOver = new Set<number>();
  readonly #refusals = new Map<number, number>();

  constructor(options: ProductReadsOptions) {
    this.#options = options;
  }

  /**
   * Reads one product. If many wait, first judges them by the last sweep, and requests a new one if that does not
   * suffice. Returns whether more may wait. Throws the errors of a call.
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
    return this.#options.stores.read(({ admin }) => admin.countUnresolved('needs-read'));
  }

  /**
   * Returns the oldest waiting change that is not in `passedOver`. Before that, moves changes that the mirror can
   * resolve by now.
   */
  next(passedOver: ReadonlySet<number>): Promise<{ changeId: number; query: ProductQuery } | undefined> {
    return this.#options.stores.write(({ admin, intake }) => {
      for (const kept of admin.unresolved('needs-read', { limit: PART })) {
        const { changeId } = kept;
        const resolution = intake.resolve(kept);
        if (resolution.state !== 'needs-read') admin.retarget(kept, resolution);
        else if (!passedOver.has(changeId)) return { changeId, query: resolution.query };
      }
      return undefined;
    });
  }

  /** Writes the platform's answer about a product into the mirror and resolves the change. */
  async resolved(changeId: number, record: ProductRecord | null, mark: ReadMark): Promise<void> {
    await this.#options.stores.write(({ catalog, admin, intake }) => {
      if (record) catalog.applyRead(record, mark);
      const [kept] = admin.unresolved('needs-read', { after: changeId - 1, limit: 1 });
      if (kept?.changeId === changeId) admin.retarget(kept, intake.resolve(kept, true));
    });
  }

  /**
   * Rejects changes whose product was in no branch's list in a recent sweep. Returns false if changes wait for a new
   * sweep, and true if none does or no sweep is possible.
   */
  async judgeByCatalog(): Promise<boolean> {
    const { stores, wantCatalog, clock } = this.#options;
    const sweptMs = stores.read(({ lookup }) => lookup.sweptMs);
    // No sweep is requested, because the first one starts by itself, and without branches there is none.
    if (sweptMs === undefined) return true;
    // The last sweep has a time in the future, because the clock was set back. So it is unknown which changes came
    // after it.
    if (wantCatalog && sweptMs > clock.nowMs()) return false;
    const handedOverUntilMs = wantCatalog ? sweptMs + CATALOG_SPEAKS_MS : undefined;
    let last: number | undefined = 0;
    while (last !== undefined) {
      const after: number = last;
      last = await stores.write((at) => {
        const kept = at.admin.unresolved('needs-read', { after, handedOverUntilMs, limit: PART });
        for (const each of kept) at.admin.retarget(each, byCatalog(at, each));
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
  return {
    ...resolution,
    message: `No configured branch lists a product with ${name}.${twinsText(resolution.candidates)}`,
  };
}

/**
 * More scarce counts at once than this are taken as a whole inventory, which is sent without reads of the platform. The
 * next sweep compares the whole inventory.
 */
const LOOKS_MAX = 30;
/**
 * Longest time spent in a row on reads of scarce stocks, and the time for which these reads are switched off
 * afterwards.
 */
const LOOKING_MAX_MS = 60_000;

interface LookerOptions {
  stores: MirrorStores;
  platform: Pick<PlatformClient, 'productGet'>;
  /** `stock.look_below`. 0 means that no stock is read before it is sent. */
  lookBelow: number;
  /** Whether orders arrive late, because they come only by polls. */
  isHeardLate: () => boolean;
  clock: Clock;
}

/**
 * Reads scarce stocks on the platform before their counts are sent, because an order that has not arrived yet may
 * have taken pieces.
 */
export class StockLooker {
  readonly #options: LookerOptions;
  #offUntilMonoMs = Number.NEGATIVE_INFINITY;

  constructor(options: LookerOptions) {
    this.#options = options;
  }

  /** Counts up to this quantity are sent only after a read of the platform; 0 if all counts are sent without a read. */
  get lookBelow(): number {
    const { lookBelow, isHeardLate, clock } = this.#options;
    return lookBelow > 0 && clock.monotonicMs() >= this.#offUntilMonoMs && isHeardLate() ? lookBelow : 0;
  }

  /**
   * Reads the first `atMost` stocks, or none if too many wait, and stops as soon as `isUrgent` returns true. Throws
   * errors that do not concern a single product.
   */
  async look(
    places: readonly StockKey[],
    call: CallOptions,
    isUrgent: () => boolean,
    atMost = places.length,
  ): Promise<void> {
    const { clock } = this.#options;
    const endMonoMs = clock.monotonicMs() + LOOKING_MAX_MS;
    if (places.length > LOOKS_MAX) {
      this.#offUntilMonoMs = endMonoMs;
      return;
    }
    for (const place of places.slice(0, atMost)) {
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
