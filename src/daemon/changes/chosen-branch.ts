import type { ProductChange, StockChange } from '../../domain/change/change.ts';
import { TillsyncError } from '../../domain/errors.ts';
import type { Branch } from '../../domain/product/catalog-lookup.ts';
import { branchName, namedBranch } from '../sweep-now.ts';

/** The branch that a hand-over is for. */
export interface ChosenBranch {
  /** A change that names no branch is for this one. */
  named<T extends StockChange | ProductChange>(change: T): T;
  /** Internal ids of the branches that a whole inventory counts; undefined: all that the mirror has. */
  readonly subsidiaryIds: ReadonlySet<string> | undefined;
}

/** `name`: one of the ids of a configured branch; without it, changes stay as they are. Throws `usage`. */
export function chosenBranch(branches: readonly Branch[], name: string | undefined): ChosenBranch {
  if (name === undefined) {
    const ids = branches.flatMap(({ subsidiaryId }) => (subsidiaryId === null ? [] : [subsidiaryId]));
    // With a branch of unknown id among them, nobody can tell its stocks from those of other branches.
    return {
      named: (change) => change,
      subsidiaryIds: ids.length === branches.length ? new Set(ids) : undefined,
    };
  }
  const branch = namedBranch(branches, name);
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
