import type { Branch } from '../catalog/product.ts';
import { type SweepReport, type SweepRequest, sweepAll } from '../catalog/sweep.ts';
import { isBranch } from '../config/roles.ts';
import { TillsyncError } from '../core/errors.ts';
import type { ProductChange, StockChange } from '../outbox/change.ts';
import type { Parts } from './parts.ts';

export interface SweepNowRequest extends SweepRequest {
  /** Only this branch; if left out, every configured branch. */
  branch?: Branch | undefined;
}

/** Sweeps the platform's catalogue into the mirror, with or without a running daemon. */
export async function sweepNow(
  { catalogSweep, branches, mirror }: Parts,
  request: SweepNowRequest,
): Promise<SweepReport[]> {
  const { freshnessBoard: freshness, alarms } = mirror;
  if (request.branch === undefined) {
    return await sweepAll({ sweep: catalogSweep, branches, freshness, alarms }, request);
  }
  // A sweep of one branch proves nothing about the others, so the catalogue's freshness stays.
  return [await catalogSweep.sweep(request.branch, request)];
}

/** Returns the configured branch with this id. `from` says where the id was given. Throws `usage`. */
export function namedBranch(branches: readonly Branch[], name: string, from = '--branch'): Branch {
  const found = branches.filter((each) => each.subsidiaryId === name || each.externalId === name);
  if (found.length === 1 && found[0]) return found[0];
  const known = branches.map(branchName).join(', ');
  throw new TillsyncError(
    'usage',
    `${from}: found "${name}", which ${found.length === 0 ? 'names no configured branch' : 'names several branches'}.`,
    { hint: known === '' ? 'No branches are configured; add [[branches]].' : `Configured are: ${known}.` },
  );
}

/** Returns a branch's name for people: `sub-1 (B1)`. */
export function branchName({ subsidiaryId, externalId }: Branch): string {
  if (subsidiaryId === null) return externalId ?? '';
  return externalId === null ? subsidiaryId : `${subsidiaryId} (${externalId})`;
}

/** The branch that a submission is for. */
interface ChosenBranch {
  /** Adds this branch to a change that names none. */
  named<T extends StockChange | ProductChange>(change: T): T;
  /** Internal ids of the branches that a whole inventory counts; undefined means all of the mirror. */
  readonly subsidiaryIds: ReadonlySet<string> | undefined;
}

/** `name` is an id of a configured branch; without it, changes stay as they are. Throws `usage`. */
export function chosenBranch(
  { branches, config }: Pick<Parts, 'branches' | 'config'>,
  name: string | undefined,
): ChosenBranch {
  const branch = name === undefined ? undefined : namedBranch(branches, name);
  // A branch of a hub has only its own stocks.
  if (branch === undefined || isBranch(config)) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    // If one of them has an unknown id, its stocks cannot be told from those of other branches.
    return {
      named: (change) => change,
      subsidiaryIds: ids.length === branches.length ? new Set(ids) : undefined,
    };
  }
  const { subsidiaryId } = branch;
  if (subsidiaryId === null) {
    throw new TillsyncError(
      'usage',
      `--branch: the configuration does not say which subsidiary_id ${branchName(branch)} has.`,
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
