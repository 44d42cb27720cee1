import { branchName, namedBranch } from '../catalog/product.ts';
import { type SweepNowRequest, sweepNow } from '../catalog/sweep.ts';
import { isBranch } from '../config/roles.ts';
import { asTillsyncError, TillsyncError } from '../core/errors.ts';
import type { ProductChange, SourceLine, StockChange } from '../outbox/intake/change.ts';
import { type InventoryPlan, planInventory } from '../outbox/intake/full-inventory-plan.ts';
import type { OptionNames, Row, RowsRule } from '../outbox/intake/same-article.ts';
import type { Services } from './services.ts';

type InventoryServices = Pick<
  Services,
  'config' | 'stores' | 'outbox' | 'branches' | 'catalogSweep' | 'mirror'
>;

/** The branch to which a submission belongs. */
interface ChosenBranch {
  /** Adds the branch to a change that names no branch. */
  named<T extends StockChange | ProductChange>(change: T): T;
  /** Subsidiary ids of the branches that a whole inventory counts; undefined means all branches in the mirror. */
  readonly subsidiaryIds: ReadonlySet<string> | undefined;
}

/**
 * Returns the branch with the id `name`, which was given in the option `from`. Without `name`, changes are left as
 * they are. Throws `usage` for an unknown id.
 */
export function chosenBranch(
  { branches, config }: Pick<Services, 'branches' | 'config'>,
  name: string | undefined,
  from: string,
): ChosenBranch {
  const branch = name === undefined ? undefined : namedBranch(branches, name, from);
  // A branch of a hub has only its own stocks, so the branch need not be named.
  if (branch === undefined || isBranch(config)) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    // If the id of one branch is unknown, its stocks cannot be told apart, so the inventory counts those of all
    // branches.
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

export type InventoryLine = SourceLine & { kind: 'stock'; change: StockChange; countedAt?: string | null };
/** A line of an inventory, or an item that was unreadable. */
export type InventoryRow = InventoryLine | Extract<Row, { fault: unknown }>;

/** A submitted whole inventory, without its lines. */
interface InventoryRequest {
  /** Branch that the inventory counts, as the sender named it; undefined for all branches. */
  branch: string | undefined;
  chosen: ChosenBranch;
  /** What to do with known stocks that the inventory does not name. */
  missing: 'keep' | 'zero' | undefined;
  /** What happens to several rows of one stock, and how the sender names options. */
  rows: RowsRule;
  names: OptionNames;
}

/** A whole inventory that is ready to be compared with the mirror, after a sweep if one was needed. */
export interface WholeInventory {
  /** The one branch that it counts; undefined for all branches. */
  branch: string | undefined;
  /** Returns the comparison with the mirror in its present state. */
  plan(): Promise<InventoryPlan<InventoryLine>>;
  /** Why the needed sweep failed; null if it succeeded or none was needed. */
  catalogFault: string | null;
}

/**
 * Prepares a whole inventory. If it names unknown products, which may be new on the platform, the catalogue is swept
 * first. A branch uses its hub's catalogue instead.
 */
export async function wholeInventory(
  services: InventoryServices,
  given: readonly InventoryRow[],
  { branch, chosen, missing, rows, names }: InventoryRequest,
  sweep: SweepNowRequest & { signal: AbortSignal },
): Promise<WholeInventory> {
  const newestVersion = () => services.stores.read(({ queries }) => queries.newestVersion());
  const atBranch = isBranch(services.config);
  const options = {
    subsidiaryIds: chosen.subsidiaryIds,
    rows,
    names,
    isBranch: atBranch,
    readAtVersion: newestVersion(),
    ...(missing === 'zero' && { zeroMissing: zeroAfter(given.length, newestCount(given)) }),
  };
  let made: { plan: InventoryPlan<InventoryLine>; atVersion: number } | undefined;
  const planned = async (isCatalogNew: boolean) => {
    await services.outbox.catchUp();
    const atVersion = newestVersion();
    // Changes that were submitted after the last plan are newer than the inventory and must stay, so only they make a
    // new plan necessary.
    if (made?.atVersion !== atVersion) {
      made = { plan: planInventory(services, given, { ...options, isCatalogNew }), atVersion };
    }
    return made.plan;
  };
  const first = await planned(atBranch);
  const isKnown = first.unknown === 0 && first.refused.every((row) => row.fault.code !== 'twin');
  if (isKnown || atBranch) return { branch, plan: () => planned(atBranch), catalogFault: null };
  try {
    const one = branch === undefined ? undefined : namedBranch(services.branches, branch);
    await sweepNow(services, { ...sweep, branch: one });
  } catch (error) {
    if (sweep.signal.aborted) throw error;
    return { branch, plan: () => planned(false), catalogFault: asTillsyncError(error).message };
  }
  made = undefined;
  return { branch, plan: () => planned(true), catalogFault: null };
}

/**
 * Returns a function that makes the lines that set missing stocks to zero. Their indexes follow those of the submitted
 * items.
 */
function zeroAfter(items: number, countedAt: string | undefined) {
  return (change: StockChange, n: number): InventoryLine => {
    const unnamed = `sku ${change.sku} in ${change.subsidiaryId}`;
    const dated = countedAt === undefined ? {} : { countedAt };
    return { index: items + n, line: null, unnamed, kind: 'stock', change, ...dated };
  };
}

/**
 * Returns when the newest row was counted (ISO 8601 UTC), if each row says when. What such an inventory does not name
 * was missing then, and not only now.
 */
function newestCount(rows: readonly InventoryRow[]): string | undefined {
  const times = rows.map((row) => row.countedAt ?? null);
  return times.includes(null) ? undefined : (times as string[]).toSorted().at(-1);
}

/** Returns the comparison of a whole inventory with the mirror, as commands and API report it. */
export function inventoryReport(
  { changes: _changes, refused: _refused, hold, ...counts }: InventoryPlan<InventoryLine>,
  { branch, catalogFault }: Pick<WholeInventory, 'branch' | 'catalogFault'>,
  missing: InventoryRequest['missing'] = 'keep',
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
