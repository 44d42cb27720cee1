import { TillsyncError } from '../core/errors.ts';
import type { BranchConfig, Config } from './config-type.ts';

/** Whether this tillsync belongs to one branch and has no platform of its own, but a hub (`[link]`). */
export function isBranch({ link }: { link: Pick<Config['link'], 'hub'> }): boolean {
  return link.hub !== '';
}

/** Whether branches with a tillsync of their own hang on this one (`[hub]`). */
export function isHub({ hub }: Pick<Config, 'hub'>): boolean {
  return hub.nats !== '';
}

export const ROLES = ['store', 'hub', 'branch'] as const;

/** `store`: one that stands alone. */
export function roleOf(config: Pick<Config, 'link' | 'hub'>): (typeof ROLES)[number] {
  return isHub(config) ? 'hub' : isBranch(config) ? 'branch' : 'store';
}

/** Host by which a company is known: that of the platform, and at a branch that of its hub. */
export function companyHost({ platform, link }: Pick<Config, 'platform' | 'link'>): string {
  return new URL(platform.baseUrl || link.hub).host;
}

/** A branch was to call the platform. */
export function branchCallsNobody(): TillsyncError {
  return new TillsyncError('usage', 'This is a branch: only its hub calls the platform.', {
    hint: 'Run the command at the hub.',
  });
}

/** What a hub knows its branches by. */
export function configuredNames(
  branches: readonly BranchConfig[],
): { name: string; subsidiaryId: string | null }[] {
  return branches.map((branch) => ({ name: branchName(branch), subsidiaryId: branch.subsidiaryId ?? null }));
}

/** How a hub calls the branch. */
export function branchName({ externalId, subsidiaryId }: BranchConfig): string {
  return externalId ?? subsidiaryId ?? '';
}
