import { TillsyncError } from '../core/errors.ts';
import { literalTarget, type ProductChange, type StockChange, type Target } from '../outbox/change.ts';
import { MirrorValues } from '../outbox/claims.ts';
import {
  type CountedStock,
  diffInventory,
  guardMissing,
  guardPrice,
  type Hold,
} from '../outbox/guard-rails.ts';
import { type IndexedStock, InventoryIndex } from '../outbox/inventory-index.ts';
import type { NamedChange } from '../outbox/resolve.ts';
import { UnsettledStocks } from '../outbox/stock-ledger.ts';
import type { HandedOver } from './change-desk.ts';
import type { Parts } from './parts.ts';
import type { Stores } from './stores.ts';

/**
 * - `send`: it would leave in a call
 * - `unchanged`: the platform has it, so no call is needed
 * - `read`: its product would be read first, to learn what it is for
 * - `held`: a guard rail would hold it for a person
 * - `rejected`: it cannot be determined what it is for
 */
export type Verdict = 'send' | 'unchanged' | 'read' | 'held' | 'rejected';

/** What a change of either kind says, without its address. */
export type ChangeValues = Partial<Pick<StockChange, 'qty'> & Omit<ProductChange, 'sku' | 'externalId'>>;

export interface Preview<T> {
  /** The last line for its target; of a product the values of earlier ones go with it. */
  line: T;
  target: string;
  /** What would go, by name. */
  values: ChangeValues;
  verdict: Verdict;
  /** One sentence for a person. */
  why: string;
}

interface Place<T> {
  line: T;
  named: NamedChange;
  target: Target;
  values: ChangeValues;
  state: 'resolved' | 'as-is' | 'needs-read' | 'rejected';
  message: string;
}

/** What would become of changes were they handed over now. Nothing is written. */
export async function previewChanges<T extends NamedChange>(
  parts: Pick<Parts, 'stores' | 'changeDesk' | 'config'>,
  lines: readonly T[],
  hold: Hold | undefined,
): Promise<Preview<T>[]> {
  const { stores, changeDesk, config } = parts;
  const zeroHold = await changeDesk.zeroHold(lines as readonly (T & HandedOver)[]);
  return stores.read((at) => {
    const judge = new Judge(at, { config, hold, zeroHold });
    return [...placed(at, changeDesk, lines).values()].map((place) => judge.preview(place));
  });
}

/** One place for each target, with the last value of every field. */
function placed<T extends NamedChange>(
  at: Stores,
  desk: Parts['changeDesk'],
  lines: readonly T[],
): Map<string, Place<T>> {
  const places = new Map<string, Place<T>>();
  for (const [i, line] of lines.entries()) {
    const resolution = desk.resolve(at, line);
    const { state } = resolution;
    const target = 'target' in resolution ? resolution.target : literalTarget(line.change);
    const message = 'message' in resolution ? resolution.message : '';
    const key = state === 'rejected' ? `line:${i}` : target.key;
    const { sku: _s, externalId: _e, ...rest } = line.change as StockChange & ProductChange;
    const { subsidiaryId: _b, subsidiaryExternalId: _x, ...values } = rest;
    const before = places.get(key)?.values ?? {};
    places.delete(key);
    places.set(key, { line, named: line, target, state, message, values: { ...before, ...values } });
  }
  return places;
}

interface JudgeSettings {
  config: Parts['config'];
  hold: Hold | undefined;
  zeroHold: Hold | undefined;
}

type StockRow = { qty: number | string | null; show: number | null; uncertain: number };
type ProductRow = { price: number | string | null; name: string | null; show: number | null };

class Judge {
  readonly #settings: JudgeSettings;
  readonly #values: MirrorValues;
  readonly #unsettled: ReadonlySet<string>;
  readonly #stock;
  readonly #product;

  constructor({ db }: Stores, settings: JudgeSettings) {
    this.#settings = settings;
    this.#values = new MirrorValues(db);
    this.#unsettled = new UnsettledStocks(db).keys({ holdBack: settings.config.stock.holdBackUnbooked });
    this.#stock = db.prepare<[string, string], StockRow>(
      'SELECT qty, show, uncertain FROM stocks WHERE sku = ? AND subsidiary_id = ?',
    );
    this.#product = db.prepare<[string], ProductRow>(
      'SELECT s.price, p.name, p.show FROM skus s JOIN products p USING (product_id) WHERE s.sku = ?',
    );
  }

  preview<T>(place: Place<T>): Preview<T> {
    const { line, target, values } = place;
    return { line, target: target.key, values, ...this.#verdict(place) };
  }

  #verdict(place: Place<unknown>): { verdict: Verdict; why: string } {
    const { state, message, target } = place;
    if (state === 'rejected') return { verdict: 'rejected', why: message };
    const hold = this.#settings.hold ?? this.#guard(place);
    if (hold) return { verdict: 'held', why: hold.message };
    if (state === 'needs-read') {
      return { verdict: 'read', why: 'The mirror does not know it, so the platform is asked for it first.' };
    }
    if (this.#isUnchanged(place))
      return { verdict: 'unchanged', why: 'The platform has this value already.' };
    const { sku, subsidiaryId } = target;
    if (state === 'as-is' || sku === null) {
      return { verdict: 'send', why: 'The mirror does not know it; the platform decides what it is for.' };
    }
    return {
      verdict: 'send',
      why:
        place.named.kind === 'stock'
          ? this.#whyStock(place, sku, subsidiaryId ?? '')
          : this.#whyProduct(place, sku),
    };
  }

  #guard({ named, target, values }: Place<unknown>): Hold | undefined {
    const { zeroHold, config } = this.#settings;
    const { sku, subsidiaryId } = target;
    if (named.kind === 'stock') {
      return values.qty === 0 && !this.#values.isZero(sku, subsidiaryId) ? zeroHold : undefined;
    }
    if (values.price === undefined || sku === null) return undefined;
    return guardPrice(this.#values.priceOf(sku), values.price, config.guard);
  }

  #isUnchanged({ named, target, values }: Place<unknown>): boolean {
    const { sku, subsidiaryId, key } = target;
    if (!this.#settings.config.stock.skipUnchanged || sku === null) return false;
    if (named.kind === 'product') return this.#values.hasProductValues(sku, values);
    const { qty = Number.NaN, show } = values;
    if (subsidiaryId === null || this.#unsettled.has(key)) return false;
    return this.#values.hasStock(sku, subsidiaryId, { qty, show });
  }

  #whyStock({ target, values }: Place<unknown>, sku: string, subsidiaryId: string): string {
    const known = this.#stock.get(sku, subsidiaryId);
    if (!known) return 'The mirror has no such stock; the platform may refuse it.';
    const parts = [`The mirror has ${known.qty ?? 'no quantity'}`];
    if (values.show !== undefined) parts.push(`show ${known.show === null ? 'unknown' : known.show === 1}`);
    if (!this.#unsettled.has(target.key)) {
      const lost =
        known.uncertain === 1 ? '; an answer of the platform was lost, so it may have another value' : '';
      return `${parts.join(', ')}${lost}.`;
    }
    const { holdBackUnbooked } = this.#settings.config.stock;
    const less = holdBackUnbooked ? '; what is sold online and not booked is taken off as it leaves' : '';
    return `${parts.join(', ')}, and orders or changes under way may have changed it${less}.`;
  }

  #whyProduct({ values }: Place<unknown>, sku: string): string {
    const known = this.#product.get(sku);
    const has: string[] = [];
    if (values.price !== undefined) has.push(`price ${known?.price ?? 'unknown'}`);
    if (values.name !== undefined) has.push(`name ${JSON.stringify(known?.name ?? null)}`);
    if (values.show !== undefined) has.push(`show ${known?.show == null ? 'unknown' : known.show === 1}`);
    if (values.description !== undefined) has.push('no description, which the platform does not show');
    return `The mirror has ${has.join(', ')}.`;
  }
}

const SAMPLE = 20;

export interface InventoryPlan<T> {
  /** Lines to be handed over, in the order given; then what the inventory does not name and that shall be zero. */
  changes: T[];
  /** How many of the lines differ from the mirror, and how many it only is not sure of. */
  different: number;
  unsure: number;
  /** Lines that say what the platform has. */
  unchanged: number;
  /** Stocks of the mirror that the inventory should name. */
  known: number;
  /** How many of them it does not name, and the target keys of the first. */
  missing: number;
  missingSample: string[];
  /** How many of those are not zero, as far as is known. */
  missingNotZero: number;
  /** Lines that cannot be used or placed, and may be what is missing: nothing goes to zero then. */
  unclear: number;
  /** Why the whole inventory is held for a person. */
  hold: Hold | undefined;
}

interface Line<T> extends CountedStock {
  line: T;
}

export interface InventoryOptions<T> {
  /** The branches that it counts; undefined: all. */
  subsidiaryIds: ReadonlySet<string> | undefined;
  /** Makes the line that sets what it does not name to zero; without it that stays as it is. */
  zeroMissing?: ((change: StockChange, n: number) => T) | undefined;
  /** Further lines, of which nothing could be read. */
  unreadable: number;
}

/**
 * Compares a whole inventory with the mirror, so that only what differs is handed over. When it lacks too much it is
 * held. Throws `not-found` before the catalogue was read.
 */
export function planInventory<T extends { change: StockChange }>(
  parts: Pick<Parts, 'stores' | 'changeDesk' | 'config'>,
  lines: readonly T[],
  { subsidiaryIds, zeroMissing, unreadable }: InventoryOptions<T>,
): InventoryPlan<T> {
  const { stores, changeDesk, config } = parts;
  return stores.read((at) => {
    requireCatalog(at);
    const index = new InventoryIndex({ db: at.db, branches: stores.directory, subsidiaryIds });
    const { holdBackUnbooked: holdBack } = config.stock;
    doubt(index.stocks, new UnsettledStocks(at.db).keys({ holdBack }));
    let unclear = unreadable;
    const counted = lines.map((line, i): Line<T> => {
      const { change } = line;
      let key = index.keyOf(change);
      if (key === undefined) {
        const resolution = changeDesk.resolve(at, { kind: 'stock', change });
        if (resolution.state === 'rejected' && resolution.candidates.length > 0) unclear += 1;
        key = keyOf(resolution, i);
      }
      const { qty, show } = change;
      return show === undefined ? { key, qty, line } : { key, qty, show, line };
    });
    const { changes, unsure, unchanged, missing } = diffInventory(counted, index.stocks);
    const known = index.stocks.size;
    const notZero = missing.flatMap((key) => {
      const stock = index.stocks.get(key) as IndexedStock;
      return stock.unsure === true || Number(stock.qty ?? Number.NaN) !== 0 ? [stock] : [];
    });
    const zeros = notZero.flatMap(({ sku, subsidiaryId }, n) =>
      zeroMissing && unclear === 0 ? [zeroMissing({ sku, subsidiaryId, qty: 0 }, n)] : [],
    );
    return {
      changes: [...changes.map(({ line }) => line), ...zeros],
      different: changes.length - unsure,
      unsure,
      unchanged,
      known,
      missing: missing.length,
      missingSample: missing.slice(0, SAMPLE),
      missingNotZero: notZero.length,
      unclear,
      hold: guardMissing({ known, missing: missing.length }, config.guard),
    };
  });
}

/** What the mirror has of these stocks is not the last word, so any count for them is news. */
function doubt(known: Map<string, IndexedStock>, unsettled: ReadonlySet<string>): void {
  for (const key of unsettled) {
    const stock = known.get(key);
    if (stock) known.set(key, { ...stock, unsure: true });
  }
}

function requireCatalog({ lookup }: Pick<Stores, 'lookup'>): void {
  if (lookup.isComplete) return;
  throw new TillsyncError(
    'not-found',
    'The catalogue was never read whole, so there is nothing to compare an inventory with. Nothing was taken.',
    { hint: 'Read it first: {tillsync} sync products' },
  );
}

/** A line that cannot be placed differs from all others and from the mirror; handing it over tells why. */
function keyOf(resolution: ReturnType<Parts['changeDesk']['resolve']>, index: number): string {
  return 'target' in resolution ? resolution.target.key : `line:${index}`;
}
