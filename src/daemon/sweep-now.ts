import { TillsyncError } from '../domain/errors.ts';
import type { Branch } from '../domain/product/catalog-lookup.ts';
import type { SweepReport } from '../sync/catalog-sweep.ts';
import type { LeasedSweepRequest } from '../sync/leased-sweep.ts';
import { sweepAll } from '../sync/sweep-loop.ts';
import type { Parts } from './parts.ts';

export type { SweepReport };

export interface SweepNowRequest extends LeasedSweepRequest {
  /** Only this one; without it every configured branch. */
  branch?: Branch | undefined;
  /** Told before each branch. */
  onBranch?: (branch: Branch) => void;
}

/** Reads the catalogue of the platform into the mirror, beside a daemon or without one. */
export async function sweepNow(parts: Parts, request: SweepNowRequest): Promise<SweepReport[]> {
  const { catalogSweep, branches } = parts;
  const { freshnessBoard: freshness, alarms } = parts.mirror;
  const sweep = {
    sweep: (branch: Branch, how: LeasedSweepRequest) => {
      request.onBranch?.(branch);
      return catalogSweep.sweep(branch, how);
    },
  };
  if (request.branch === undefined) {
    return await sweepAll({ sweep, branches, freshness, alarms }, request);
  }
  // One branch says nothing of the others, so how fresh the whole is stays as it was told.
  return [await sweep.sweep(request.branch, request)];
}

/** The configured branch that a person means by one of its ids. Throws `usage`. */
export function namedBranch(branches: readonly Branch[], name: string): Branch {
  const found = branches.filter((each) => each.subsidiaryId === name || each.externalId === name);
  if (found.length === 1 && found[0]) return found[0];
  const known = branches.map(branchName).join(', ');
  throw new TillsyncError(
    'usage',
    `--branch: found "${name}", which ${found.length === 0 ? 'names no configured branch' : 'names several branches'}.`,
    { hint: known === '' ? 'No branches are configured; add [[branches]].' : `Configured are: ${known}.` },
  );
}

/** A branch as people know it: `sub-1 (B1)`. */
export function branchName({ subsidiaryId, externalId }: Branch): string {
  if (subsidiaryId === null) return externalId ?? '';
  return externalId === null ? subsidiaryId : `${subsidiaryId} (${externalId})`;
}
