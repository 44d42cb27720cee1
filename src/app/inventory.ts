import { branchName, namedBranch } from '../catalog/product.ts';
import { type SweepNowRequest, sweepNow } from '../catalog/sweep.ts';
import { isBranch } from '../config/roles.ts';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import type { ProductChange, SourceLine, StockChange } from '../outbox/change.ts';
import { type InventoryPlan, planInventory } from '../outbox/full-inventory-plan.ts';
import type { Services } from './services.ts';

type InventoryParts = Pick<Services, 'config' | 'stores' | 'outbox' | 'branches' | 'catalogSweep' | 'mirror'>;

/** The branch that a submission is for. */
interface ChosenBranch {
  /** Adds this branch to a change that names none. */
  named<T extends StockChange | ProductChange>(change: T): T;
  /** Internal ids of the branches that a whole inventory counts; undefined means all of the mirror. */
  readonly subsidiaryIds: ReadonlySet<string> | undefined;
}

/**
 * `name` is an id of a configured branch, as the option `from` gave it; without it, changes stay as they are. Throws
 * `usage`.
 */
export function chosenBranch(
  { branches, config }: Pick<Services, 'branches' | 'config'>,
  name: string | undefined,
  from: string,
): ChosenBranch {
  const branch = name === undefined ? undefined : namedBranch(branches, name, from);
  // A branch of a hub has only its own stocks.
  if (branch === undefined || isBranch(config)) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    // If the id of a branch is unknown, its stocks are not distinguishable from those of other branches.
    return {
      named: (change) => change,
      subsidiaryIds: ids.length === branches.length ? new Set(ids) : undefined,
    };
  }
  const { subsidiaryId } = branch;
  if (subsidiaryId === null) {
    throw new TillsyncError(
      'usage',
      `${from}: the configuration does not say which subsidiary_id ${branchName(branch)} has.`,
      { hint: 'Add subsidiary_id beside external_id in its [[branches]] section.' },
    );
  }
  return {
    named: (change) =>
      'qty' in change && change.subsidiaryId === undefined && change.subsidiaryExternalId === undefined
        ? { ...change, subsidiaryId }
        : change,
    subsidiaryIds: new Set([subsidiaryId]),
  };
}

export type InventoryLine = SourceLine & { kind: 'stock'; change: StockChange };

/** A whole inventory as it was handed over, besides its lines. */
interface InventoryRequest {
  /** The one branch that it counts, as it was named; undefined: all. */
  branch: string | undefined;
  chosen: ChosenBranch;
  /** What becomes of known stocks that it does not name. */
  missing: 'keep' | 'zero' | undefined;
  /** Number of its items, and of those that were unreadable. */
  items: number;
  unreadable: number;
}

/** A whole inventory, for which the catalogue is as new as it can be. */
export interface WholeInventory {
  /** Returns the comparison with the mirror as it is now. */
  plan(): Promise<InventoryPlan<InventoryLine>>;
  /** Why no sweep was possible; null if there was one, or none was needed. */
  catalogFault: string | null;
}

/**
 * Prepares a whole inventory. Unknown products may be new on the platform, so the catalogue is swept first where there
 * are any. A branch uses its hub's catalogue.
 */
export async function wholeInventory(
  parts: InventoryParts,
  lines: readonly InventoryLine[],
  { branch, chosen, missing, items, unreadable }: InventoryRequest,
  sweep: SweepNowRequest & { signal: AbortSignal },
): Promise<WholeInventory> {
  const newestVersion = () => parts.stores.read(({ queries }) => queries.newestVersion());
  const atBranch = isBranch(parts.config);
  const options = {
    subsidiaryIds: chosen.subsidiaryIds,
    unreadable,
    isBranch: atBranch,
    readAtVersion: newestVersion(),
    ...(missing === 'zero' && { zeroMissing: zeroAfter(items) }),
  };
  let made: { plan: InventoryPlan<InventoryLine>; atVersion: number } | undefined;
  const planned = async (isCatalogNew: boolean) => {
    await parts.outbox.catchUp();
    const atVersion = newestVersion();
    // What was handed over since the last plan is newer than the inventory, and stays.
    if (made?.atVersion !== atVersion) {
      made = { plan: planInventory(parts, lines, { ...options, isCatalogNew }), atVersion };
    }
    return made.plan;
  };
  const { unknown } = await planned(atBranch);
  if (unknown === 0 || atBranch) return { plan: () => planned(atBranch), catalogFault: null };
  try {
    const one = branch === undefined ? undefined : namedBranch(parts.branches, branch);
    await sweepNow(parts, { ...sweep, branch: one });
  } catch (error) {
    if (sweep.signal.aborted) throw error;
    return { plan: () => planned(false), catalogFault: asTillsyncError(error).message };
  }
  made = undefined;
  return { plan: () => planned(true), catalogFault: null };
}

/** Makes lines for missing stocks, numbered after the file's items. */
function zeroAfter(items: number) {
  return (change: StockChange, n: number): InventoryLine => {
    const unnamed = `sku ${change.sku} in ${change.subsidiaryId}`;
    return { index: items + n, line: null, unnamed, kind: 'stock', change };
  };
}

/** Returns the comparison of a whole inventory with the mirror, for people and programs. */
export function inventoryReport(
  { changes: _changes, hold, ...counts }: InventoryPlan<InventoryLine>,
  catalogFault: string | null,
  { branch, missing = 'keep' }: Pick<InventoryRequest, 'branch' | 'missing'>,
) {
  return {
    branch: branch ?? null,
    ...counts,
    catalogFault,
    missingBecome: missing,
    hold: hold?.message ?? null,
  };
}

export type InventoryReport = ReturnType<typeof inventoryReport>;
