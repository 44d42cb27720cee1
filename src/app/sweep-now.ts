import type { Branch } from '../catalog/product.ts';
import { type SweepReport, type SweepRequest, sweepAll } from '../catalog/sweep.ts';
import { isBranch } from '../config/roles.ts';
import { TillsyncError } from '../core/errors.ts';
import type { ProductChange, StockChange } from '../outbox/change.ts';
import type { Parts } from './parts.ts';

export interface SweepNowRequest extends SweepRequest {
  /** Only this one; without it every configured branch. */
  branch?: Branch | undefined;
}

/** Reads the catalogue of the platform into the mirror, beside a daemon or without one. */
export async function sweepNow(
  { catalogSweep, branches, mirror }: Parts,
  request: SweepNowRequest,
): Promise<SweepReport[]> {
  const { freshnessBoard: freshness, alarms } = mirror;
  if (request.branch === undefined) {
    return await sweepAll({ sweep: catalogSweep, branches, freshness, alarms }, request);
  }
  // One branch says nothing of the others, so how fresh the whole is stays as it was told.
  return [await catalogSweep.sweep(request.branch, request)];
}

/** The configured branch that is meant by one of its ids; `from`: where the name stands. Throws `usage`. */
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

/** A branch as people know it: `sub-1 (B1)`. */
export function branchName({ subsidiaryId, externalId }: Branch): string {
  if (subsidiaryId === null) return externalId ?? '';
  return externalId === null ? subsidiaryId : `${subsidiaryId} (${externalId})`;
}

/** The branch that a hand-over is for. */
export interface ChosenBranch {
  /** A change that names no branch is for this one. */
  named<T extends StockChange | ProductChange>(change: T): T;
  /** Internal ids of the branches that a whole inventory counts; undefined: all that the mirror has. */
  readonly subsidiaryIds: ReadonlySet<string> | undefined;
}

/** `name`: one of the ids of a configured branch; without it, changes stay as they are. Throws `usage`. */
export function chosenBranch(
  { branches, config }: Pick<Parts, 'branches' | 'config'>,
  name: string | undefined,
): ChosenBranch {
  const branch = name === undefined ? undefined : namedBranch(branches, name);
  // At a branch of a hub there are no other stocks.
  if (branch === undefined || isBranch(config)) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    // With a branch of unknown id among them, nobody can tell its stocks from those of other branches.
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
