import type { StockChange } from '../../domain/change/change.ts';
import { guardMissing, type Hold } from '../../domain/change/guard-rails.ts';
import { type CountedStock, diffInventory } from '../../domain/change/inventory-diff.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { type IndexedStock, InventoryIndex } from '../../store/catalog/inventory-index.ts';
import { UnsettledStocks } from '../../store/outbox/unsettled-stocks.ts';
import type { Parts } from '../parts.ts';
import type { Stores } from '../storage/mirror-stores.ts';

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
