import type { ProductQuery } from '../domain/change/target.ts';
import type { CallOptions } from '../domain/platform/call.ts';
import type { Platform, ProductRecord } from '../domain/platform/platform.ts';
import type { ReadMark } from './catalog-sweep.ts';

/** More than this are not asked for one by one: a sweep answers for all of them in fewer calls. */
const ASK_MAX = 100;

/** A change whose product has to be read before its target is known. */
export interface Unresolved {
  changeId: number;
  query: ProductQuery;
}

/** Changes whose product the mirror does not know. Each write is one short durable transaction. */
export interface UnresolvedChanges {
  count(): number;
  /** The oldest of them; those that the mirror knows by now are put where they belong on the way. */
  next(): Promise<Unresolved | undefined>;
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

/** Finds the products that changes name and the mirror does not know. */
export class ProductReads {
  readonly #options: ProductReadsOptions;

  constructor(options: ProductReadsOptions) {
    this.#options = options;
  }

  /** Reads one product, or lets a sweep answer for many. Whether more may wait. Throws what a call throws. */
  async step(call: CallOptions): Promise<boolean> {
    const { changes, platform, wantCatalog, onLine } = this.#options;
    if (changes.count() > ASK_MAX && !(await changes.judgeByCatalog())) wantCatalog();
    const before = changes.count();
    if (before === 0) return false;
    const next = await changes.next();
    if (!next) {
      onLine();
      return false;
    }
    let mark = changes.readMark();
    const record = await platform.productGet(next.query, {
      ...call,
      onSend: () => {
        mark = changes.readMark();
      },
    });
    await changes.resolved(next.changeId, record, mark);
    onLine();
    return true;
  }
}
