import type { StockChange } from '../../domain/change/change.ts';
import { guardMissing, type Hold } from '../../domain/change/guard-rails.ts';
import { type CountedStock, diffInventory, type KnownStock } from '../../domain/change/inventory-diff.ts';
import { TillsyncError } from '../../domain/errors.ts';
import { InventoryIndex } from '../../store/catalog/inventory-index.ts';
import { UnsettledStocks } from '../../store/outbox/unsettled-stocks.ts';
import type { Parts } from '../parts.ts';
import type { Stores } from '../storage/mirror-stores.ts';

const SAMPLE = 20;

export interface InventoryPlan<T> {
  /** Lines to be handed over, in the order given. */
  changes: T[];
  /** Lines that say what the platform has. */
  unchanged: number;
  /** Stocks of the mirror that the inventory should name. */
  known: number;
  /** How many of them it does not name, and the target keys of the first. */
  missing: number;
  missingSample: string[];
  /** Why the whole inventory is held for a person. */
  hold: Hold | undefined;
}

interface Line<T> extends CountedStock {
  line: T;
}

/**
 * Compares a whole inventory with the mirror, so that only what differs is handed over. Nothing is concluded from
 * what it does not name, but when it lacks too much it is held. Throws `not-found` before the catalogue was read.
 */
export function planInventory<T extends { change: StockChange }>(
  parts: Pick<Parts, 'stores' | 'changeDesk' | 'config'>,
  lines: readonly T[],
  options: { subsidiaryIds: ReadonlySet<string> | undefined },
): InventoryPlan<T> {
  const { stores, changeDesk, config } = parts;
  return stores.read((at) => {
    requireCatalog(at);
    const index = new InventoryIndex({ db: at.db, branches: stores.directory, ...options });
    const { holdBackUnbooked: holdBack } = config.stock;
    doubt(index.stocks, new UnsettledStocks(at.db).keys({ holdBack, ...options }));
    const counted = lines.map((line, i): Line<T> => {
      const { change } = line;
      const key = index.keyOf(change) ?? keyOf(changeDesk.resolve(at, { kind: 'stock', change }), i);
      const { qty, show } = change;
      return show === undefined ? { key, qty, line } : { key, qty, show, line };
    });
    const { changes, unchanged, missing } = diffInventory(counted, index.stocks);
    const known = index.stocks.size;
    return {
      changes: changes.map(({ line }) => line),
      unchanged,
      known,
      missing: missing.length,
      missingSample: missing.slice(0, SAMPLE),
      hold: guardMissing({ known, missing: missing.length }, config.guard),
    };
  });
}

/** What the mirror has of these stocks is not the last word, so any count for them is news. */
function doubt(known: Map<string, KnownStock>, unsettled: ReadonlySet<string>): void {
  for (const key of unsettled) {
    const stock = known.get(key);
    if (stock) known.set(key, { ...stock, qty: null });
  }
}

function requireCatalog({ lookup }: Pick<Stores, 'lookup'>): void {
  if (lookup.isComplete) return;
  throw new TillsyncError(
    'not-found',
    'The catalogue was never read whole, so there is nothing to compare an inventory with. Nothing was taken.',
    { hint: 'Read it first: tillsync sync products' },
  );
}

/** A line that cannot be placed differs from all others and from the mirror; handing it over tells why. */
function keyOf(resolution: ReturnType<Parts['changeDesk']['resolve']>, index: number): string {
  return 'target' in resolution ? resolution.target.key : `line:${index}`;
}
