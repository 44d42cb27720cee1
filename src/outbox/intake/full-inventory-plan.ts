import { TillsyncError } from '../../core/errors.ts';
import { sqlOf } from '../../db/sqlite.ts';
import { stockTarget, unsettledStocks } from '../ledger/stock-ledger.ts';
import { lessSafety } from '../ledger/stock-rule.ts';
import { KnownValues } from '../sending/known-values.ts';
import type { OutboxService } from '../sending/outbox.ts';
import type { MirrorStores, Stores } from '../sending/repositories.ts';
import {
  type Change,
  literalTarget,
  type ProductChange,
  type Resolution,
  type SourceLine,
  type StockChange,
  type Target,
} from './change.ts';
import {
  diffInventory,
  type GuardReason,
  type GuardSettings,
  goesToZero,
  guardMissing,
  guardPrice,
} from './guards.ts';
import type { ZeroHolds } from './intake.ts';
import { type IndexedStock, InventoryIndex, twinFault, twinsOf } from './inventory-index.ts';
import { type ArticleRow, type OptionNames, oneRowEach, type Row, type RowsRule } from './same-article.ts';

/**
 * - `send`: the change would be sent
 * - `unchanged`: the platform has the value, so no call is needed
 * - `read`: the product would be read first, to resolve the target
 * - `held`: a guard would hold the change for a person
 * - `rejected`: the target cannot be resolved
 */
export type Verdict = 'send' | 'unchanged' | 'read' | 'held' | 'rejected';

/** The values of a change of either kind, without its address. */
type ChangeValues = Partial<Pick<StockChange, 'qty'> & Omit<ProductChange, 'sku' | 'externalId'>>;

export interface Preview<T> {
  /** The last line with this target. */
  line: T;
  target: string;
  /**
   * Last value of each field from all lines of the target. If `verdict` is `send` or `unchanged`, the quantity is less
   * the safety stock.
   */
  values: ChangeValues;
  verdict: Verdict;
  /** Reason for the verdict, in a sentence for a person. */
  why: string;
}

/** The lines of one target, merged to the last value of every field. */
interface Place<T> {
  line: T;
  target: Target;
  values: ChangeValues;
  resolution: Resolution;
}

/** Settings of the configuration by which changes are judged. */
interface JudgeSettings {
  guard: GuardSettings;
  stock: { skipUnchanged: boolean; trustForMs: number };
}

/** Returns, for each change, what would happen to it if it were submitted now. Writes nothing. */
export async function previewChanges<T extends Change>(
  services: { stores: MirrorStores; outbox: Pick<OutboxService, 'zeroHolds'>; config: JudgeSettings },
  lines: readonly T[],
  hold: GuardReason | undefined,
): Promise<Preview<T>[]> {
  const { stores, outbox, config } = services;
  const zeroHolds = await outbox.zeroHolds(lines);
  return stores.read((at) => {
    const judge = new Judge(at, config, { hold, zeroHolds });
    return placed(at, lines).map((place) => {
      const { line, target } = place;
      const verdict = judge.verdict(place);
      const isJudged = verdict.verdict === 'send' || verdict.verdict === 'unchanged';
      return { line, target: target.key, values: isJudged ? judge.sent(place) : place.values, ...verdict };
    });
  });
}

function placed<T extends Change>({ intake }: Stores, lines: readonly T[]): Place<T>[] {
  const places = new Map<string, Place<T>>();
  for (const [i, line] of lines.entries()) {
    const resolution = intake.resolve(line);
    const target = 'target' in resolution ? resolution.target : literalTarget(line.change);
    const key = resolution.state === 'rejected' ? `line:${i}` : target.key;
    const { sku: _s, externalId: _e, ...rest } = line.change as StockChange & ProductChange;
    const { subsidiaryId: _b, subsidiaryExternalId: _x, ...values } = rest;
    const before = places.get(key)?.values ?? {};
    // Moves the target to the position of its last line.
    places.delete(key);
    places.set(key, { line, target, resolution, values: { ...before, ...values } });
  }
  return [...places.values()];
}

class Judge {
  readonly #at: Stores;
  readonly #config: JudgeSettings;
  readonly #holds: { hold: GuardReason | undefined; zeroHolds: ZeroHolds };
  readonly #values: KnownValues;
  readonly #unsettled: ReadonlySet<string>;
  readonly #safetyOf: (sku: string | null, subsidiaryId: string | null) => number;

  constructor(
    at: Stores,
    config: JudgeSettings,
    holds: { hold: GuardReason | undefined; zeroHolds: ZeroHolds },
  ) {
    this.#at = at;
    this.#config = config;
    this.#holds = holds;
    this.#values = new KnownValues(at.db);
    this.#unsettled = unsettledStocks(at.db);
    this.#safetyOf = at.safety.lookup();
  }

  /** Returns the values to send; a stock's count is reduced by its safety stock. */
  sent({ target, values }: Place<Change>): ChangeValues {
    const { qty } = values;
    if (qty === undefined) return values;
    return { ...values, qty: lessSafety(qty, this.#safetyOf(target.sku, target.subsidiaryId)) };
  }

  verdict(place: Place<Change>): { verdict: Verdict; why: string } {
    const { resolution, target, line } = place;
    if (resolution.state === 'rejected') return { verdict: 'rejected', why: resolution.message };
    const hold = this.#holds.hold ?? this.#guard(place);
    if (hold) return { verdict: 'held', why: hold.message };
    if (resolution.state === 'needs-read') {
      return { verdict: 'read', why: 'The mirror does not know it, so the platform is asked for it first.' };
    }
    const kept = this.#keptBack(place);
    if (this.#isUnchanged(place)) {
      return { verdict: 'unchanged', why: `The platform has this value already.${kept}` };
    }
    const { sku, subsidiaryId } = target;
    if (resolution.state === 'as-is' || sku === null) {
      const why = `The mirror does not know it; the platform decides what it is for.${kept}`;
      return { verdict: 'send', why };
    }
    const isStock = line.kind === 'stock';
    const why = isStock ? this.#whyStock(place, sku, subsidiaryId ?? '') : this.#whyProduct(place, sku);
    return { verdict: 'send', why: `${why}${kept}` };
  }

  #keptBack({ target, values: { qty = 0 } }: Place<Change>): string {
    const safetyQty = this.#safetyOf(target.sku, target.subsidiaryId);
    if (qty < 0) return ` A count of ${qty} is sent as 0.`;
    return qty > 0 && safetyQty > 0 ? ` Of ${qty} the safety stock of ${safetyQty} is kept back.` : '';
  }

  #guard({ line, target, values, resolution }: Place<Change>): GuardReason | undefined {
    const { sku, subsidiaryId } = target;
    // While the product is unknown, the change is not judged; it is judged when the product is found.
    if (resolution.state === 'needs-read') return undefined;
    if (line.kind === 'stock') {
      const isFresh = goesToZero(values.qty) && !this.#values.isZero(sku, subsidiaryId);
      return isFresh ? this.#holds.zeroHolds.get(subsidiaryId ?? '') : undefined;
    }
    if (values.price === undefined || sku === null) return undefined;
    return guardPrice(this.#values.priceOf(sku), values.price, this.#config.guard);
  }

  #isUnchanged(place: Place<Change>): boolean {
    const { line, target, values } = place;
    const { sku, subsidiaryId, key } = target;
    const { skipUnchanged, trustForMs: trustMs } = this.#config.stock;
    if (!skipUnchanged || sku === null) return false;
    if (line.kind === 'product') {
      return this.#values.hasProductValues(sku, values, { nowMs: this.#at.clock.nowMs(), trustMs });
    }
    if (subsidiaryId === null || this.#unsettled.has(key)) return false;
    const { qty = Number.NaN, show } = this.sent(place);
    return this.#values.hasStock(sku, subsidiaryId, { qty, show });
  }

  #whyStock({ target, values }: Place<Change>, sku: string, subsidiaryId: string): string {
    const known = sqlOf(this.#at.db).row<{ qty: unknown; show: number | null; uncertain: number }>(
      'SELECT qty, show, uncertain FROM _stocks WHERE sku = ? AND subsidiary_id = ?',
      ...[sku, subsidiaryId],
    );
    if (!known) return 'The mirror has no such stock; the platform may refuse it.';
    const shown = known.show === null ? 'unknown' : known.show === 1;
    const has = `The mirror has ${known.qty ?? 'no quantity'}${values.show === undefined ? '' : `, show ${shown}`}`;
    if (!this.#unsettled.has(target.key)) {
      const lost = '; an answer of the platform was lost, so it may have another value';
      return `${has}${known.uncertain === 1 ? lost : ''}.`;
    }
    const less = '; what is sold online and not booked is taken off as it leaves';
    return `${has}, and orders or changes under way may have changed it${this.#at.reservations.holdsBack ? less : ''}.`;
  }

  #whyProduct({ values }: Place<Change>, sku: string): string {
    const known = sqlOf(this.#at.db).row<{ price: unknown; name: string | null; show: number | null }>(
      'SELECT s.price, p.name, p.show FROM _skus s JOIN _products p USING (product_id) WHERE s.sku = ?',
      sku,
    );
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
  /** Lines to submit, in the given order, followed by lines that set missing stocks to zero. */
  changes: T[];
  /** Rows of one article that are refused, and rows whose unknown id is nearly that of a missing stock. */
  refused: Extract<Row, { fault: unknown }>[];
  /**
   * Number of lines that differ from the mirror's value, and of lines that equal it although the platform may have
   * another or the last count was another.
   */
  different: number;
  unsure: number;
  /** Number of lines that equal the platform's value. */
  unchanged: number;
  /** Number of the mirror's stocks that the inventory should contain. */
  known: number;
  /** Number of the mirror's stocks that the file lacks, and the target keys of the first of them. */
  missing: number;
  missingSample: string[];
  /** Number of missing stocks that are not known to be zero. */
  missingNotZero: number;
  /** Number of lines for unknown products, which are skipped, and the names of the first of them. */
  unknown: number;
  unknownSample: string[];
  /**
   * Number of unreadable and unresolved lines, and of `unknown` ones if the catalogue is not new. They may be the
   * missing stocks, so no stock is set to zero if there are any.
   */
  unclear: number;
  /** Reason why the whole inventory is held for a person; undefined if none. */
  hold: GuardReason | undefined;
}

export interface InventoryOptions<T> {
  /** Branches that the inventory covers; undefined means all. */
  subsidiaryIds: ReadonlySet<string> | undefined;
  /** Makes the line that sets a missing stock to zero. If left out, missing stocks stay as they are. */
  zeroMissing?: ((change: StockChange, n: number) => T) | undefined;
  /** What happens to several rows of one stock; left out, they are refused. */
  rows?: RowsRule;
  /** How the sender names options, for messages that advise one. */
  names: OptionNames;
  /**
   * True if the catalogue was read after the inventory was made, so that a product that is still unknown is not sold
   * online.
   */
  isCatalogNew?: boolean;
  /** Whether this tillsync is a branch of a hub, which cannot compare with the platform; false if left out. */
  isBranch?: boolean;
  /**
   * Newest version of the outbox when the inventory was read. Stocks that were submitted later are left out of the
   * plan.
   */
  readAtVersion?: number;
}

/**
 * Compares a whole inventory with the mirror, so that only differences are submitted. Returns a reason to hold the
 * inventory if it lacks too many stocks. Throws `not-found` if the catalogue was never read.
 */
export function planInventory<T extends SourceLine & { kind: 'stock'; change: StockChange }>(
  services: { stores: MirrorStores; config: Pick<JudgeSettings, 'guard'> },
  given: readonly (T | Row)[],
  options: InventoryOptions<T>,
): InventoryPlan<T> {
  const { stores, config } = services;
  const { subsidiaryIds, zeroMissing, isCatalogNew = false, readAtVersion, rows, names } = options;
  const { isBranch = false } = options;
  return stores.read((at) => {
    requireCatalog(at, isBranch);
    const { stocks, keyOf } = new InventoryIndex({ db: at.db, branches: stores.directory, subsidiaryIds });
    const since = "SELECT target FROM _outbox WHERE kind = 'stock' AND version > ?";
    const newer = new Set(
      readAtVersion === undefined ? [] : sqlOf(at.db).values<string>(since, readAtVersion),
    );
    for (const key of newer) stocks.delete(key);
    // The platform may have another quantity of these stocks than the mirror, so their lines are always submitted.
    for (const key of unsettledStocks(at.db)) {
      const stock = stocks.get(key);
      if (stock) stock.unsure = true;
    }
    // At a branch, the hub compares lines with the platform, so every stock is unsure here.
    if (isBranch) for (const stock of stocks.values()) stock.unsure = true;
    const { lines, refused, unreadable } = oneLineEach(at, given, { stocks, keyOf }, { rows, names });
    const safetyOf = at.safety.lookup();
    // A line may equal the platform and not the last count: counted 10, sold 2, now counted 8. It is submitted, or the
    // count of 10 would stay and be sent again.
    const counts = at.ledger.counts();
    const unknown: T[] = [];
    let unplaced = unreadable;
    const counted = lines.flatMap((line, i) => {
      const { change } = line;
      let key = keyOf(change);
      if (key === undefined) {
        const resolution = at.intake.resolve({ kind: 'stock', change });
        if (resolution.state === 'needs-read') {
          // An unknown product is no error, because most tills have more products than the online shop.
          unknown.push(line);
          return [];
        }
        if (resolution.state !== 'resolved') unplaced += 1;
        // An unresolved line gets a key of its own, so it is submitted, and the submission reports the reason.
        key = 'target' in resolution ? resolution.target.key : `line:${i}`;
      }
      if (newer.has(key)) return [];
      const { show } = change;
      const known = stocks.get(key);
      if (known && (counts.get(key) ?? change.qty) !== change.qty) known.unsure = true;
      const qty = known ? lessSafety(change.qty, safetyOf(known.sku, known.subsidiaryId)) : change.qty;
      return [{ key, qty, line, ...(show !== undefined && { show }) }];
    });
    const named = new Set(counted.map(({ key }) => key));
    const missed = [...stocks.values()].filter((stock) => !named.has(stockTarget(stock)));
    const twins = twinsOf(unknown, missed, stores.directory);
    for (const { stocks: left } of twins) for (const stock of left) stocks.delete(stockTarget(stock));
    const isTwin = new Set(twins.map(({ line }) => line));
    const skipped = unknown.filter((line) => !isTwin.has(line)).map(({ change }) => nameOfArticle(change));
    const unclear = unplaced + (isCatalogNew ? 0 : unknown.length);
    const { changes, unsure, unchanged, missing } = diffInventory(counted, stocks);
    const notZero = missing.flatMap((key) => {
      const stock = stocks.get(key) as IndexedStock;
      const isZero = stock.unsure !== true && Number(stock.qty ?? Number.NaN) === 0;
      const isCountedZero = zeroMissing === undefined || (counts.get(key) ?? 0) === 0;
      return isZero && isCountedZero ? [] : [stock];
    });
    const zeros = notZero.flatMap(({ sku, subsidiaryId }, n) =>
      zeroMissing && unclear === 0 ? [zeroMissing({ sku, subsidiaryId, qty: 0 }, n)] : [],
    );
    return {
      changes: [...changes.map(({ line }) => line), ...zeros],
      refused: [...refused, ...twins.map(twinFault)].sort((a, b) => a.index - b.index),
      different: changes.length - unsure,
      unsure,
      unchanged,
      known: stocks.size,
      missing: missing.length,
      missingSample: missing.slice(0, SAMPLE),
      missingNotZero: notZero.length,
      unknown: skipped.length,
      unknownSample: skipped.slice(0, SAMPLE),
      unclear,
      hold: guardMissing({ known: stocks.size, missing: missing.length }, config.guard),
    };
  });
}

/** Makes one line of each stock, and removes from the index the stocks whose rows are refused. */
function oneLineEach<T extends SourceLine & { kind: 'stock'; change: StockChange }>(
  at: Stores,
  given: readonly (T | Row)[],
  { stocks, keyOf }: Pick<InventoryIndex, 'stocks' | 'keyOf'>,
  how: { rows: RowsRule; names: OptionNames },
) {
  const keys = given.map((row) => ('change' in row ? keyOf(row.change as StockChange) : undefined));
  const others = at.intake.articlesOf(given.filter((_, i) => keys[i] === undefined));
  const found = new Map(others.map((each) => [each.row, each]));
  const placed = given.map(
    (row, i): ArticleRow<T | Row> => found.get(row) ?? { row, key: keys[i], productKey: keys[i] },
  );
  const one = oneRowEach(placed, { kind: 'stock', ...how });
  const unreadable = new Set(given.flatMap((row) => ('fault' in row ? [row.index] : [])));
  const refused = one.filter((row) => 'fault' in row).filter(({ index }) => !unreadable.has(index));
  const isRefused = new Set(refused.map(({ index }) => index));
  // Which of the counts is right, a person decides; meanwhile, the stock stays as it is.
  for (const { row, key } of placed) if (isRefused.has(row.index) && key !== undefined) stocks.delete(key);
  return { lines: one.filter((row): row is T => 'change' in row), refused, unreadable: unreadable.size };
}

function nameOfArticle({ externalId, sku }: StockChange): string {
  return externalId ?? `sku ${sku}`;
}

function requireCatalog({ lookup }: Stores, isBranch: boolean): void {
  if (lookup.isComplete) return;
  throw new TillsyncError(
    'not-found',
    'The catalogue was never read whole, so there is nothing to compare an inventory with. Nothing was taken.',
    {
      hint: isBranch
        ? 'It comes from the hub, which has to know the subsidiary_id of this branch. How both fare: {tillsync} status'
        : 'Read it first: {tillsync} sync catalog',
    },
  );
}
