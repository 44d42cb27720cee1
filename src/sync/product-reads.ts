import type { ProductQuery } from '../domain/change/target.ts';
import { hasCode } from '../domain/errors.ts';
import type { CallOptions } from '../domain/platform/call.ts';
import type { Platform, ProductRecord } from '../domain/platform/platform.ts';
import type { ReadMark } from './catalog-sweep.ts';

/** More than this are not asked for one by one: a sweep answers for all of them in fewer calls. */
const ASK_MAX = 100;
const REFUSALS_MAX = 3;

/** A change whose product has to be read before its target is known. */
export interface Unresolved {
  changeId: number;
  query: ProductQuery;
}

/** Changes whose product the mirror does not know. Each write is one short durable transaction. */
export interface UnresolvedChanges {
  count(): number;
  /** The oldest but for those in `passedOver`; those that the mirror knows by now are put where they belong on the way. */
  next(passedOver: ReadonlySet<number>): Promise<Unresolved | undefined>;
  readMark(): ReadMark;
  /** The platform's answer for a product: mirrored, and the change put where it belongs. */
  resolved(changeId: number, record: ProductRecord | null, mark: ReadMark): Promise<void>;
  /**
   * Rejects those whose product no branch listed in a whole reading of the catalogue that is young enough to tell.
   * False while a new reading is needed for the others; true also where none can be had.
   */
  judgeByCatalog(): Promise<boolean>;
}

export interface ProductReadsOptions {
  platform: Pick<Platform, 'productGet'>;
  changes: UnresolvedChanges;
  /** Asks for the catalogue to be read soon; heard again and again, it is read once. */
  wantCatalog: () => void;
  /** Told when something was put in line. */
  onLine: () => void;
}

/**
 * Finds the products that changes name and the mirror does not know. One whose answer cannot be read waits behind
 * the others; one that the platform refuses to show again and again is taken for unknown.
 */
export class ProductReads {
  readonly #options: ProductReadsOptions;
  readonly #passedOver = new Set<number>();
  readonly #refusals = new Map<number, number>();

  constructor(options: ProductReadsOptions) {
    this.#options = options;
  }

  /** Reads one product, or lets a sweep answer for many. Whether more may wait. Throws what a call throws. */
  async step(call: CallOptions): Promise<boolean> {
    const { changes, platform, wantCatalog, onLine } = this.#options;
    if (changes.count() > ASK_MAX && !(await changes.judgeByCatalog())) wantCatalog();
    const before = changes.count();
    if (before === 0) return false;
    const next = await changes.next(this.#passedOver);
    if (!next) {
      this.#passedOver.clear();
      onLine();
      return false;
    }
    const { changeId, query } = next;
    let mark = changes.readMark();
    const onSend = () => {
      mark = changes.readMark();
    };
    let record: ProductRecord | null = null;
    try {
      record = await platform.productGet(query, { ...call, onSend });
    } catch (error) {
      const isAbout = hasCode(error, 'platform-garbled') || hasCode(error, 'platform-refused');
      if (isAbout) this.#passedOver.add(changeId);
      if (!this.#isGivenUp(changeId, error)) throw error;
    }
    await changes.resolved(changeId, record, mark);
    this.#refusals.delete(changeId);
    onLine();
    return true;
  }

  #isGivenUp(changeId: number, error: unknown): boolean {
    if (!hasCode(error, 'platform-refused')) return false;
    const refusals = (this.#refusals.get(changeId) ?? 0) + 1;
    this.#refusals.set(changeId, refusals);
    return refusals >= REFUSALS_MAX;
  }
}
