import { TillsyncError } from '../core/errors.ts';
import type { BranchConfig, Config } from './config-type.ts';

/** Whether this tillsync is a branch: it has a hub (`[link]`) and does not call the platform. */
export function isBranch({ link }: { link: Pick<Config['link'], 'hub'> }): boolean {
  return link.hub !== '';
}

/** Whether this tillsync is a hub, to which branches with their own tillsync connect (`[hub]`). */
export function isHub({ hub }: Pick<Config, 'hub'>): boolean {
  return hub.nats !== '';
}

export const ROLES = ['store', 'hub', 'branch'] as const;

/** Sections of the file that a single store does not have. */
export const CHAIN_SECTIONS: ReadonlySet<string> = new Set(['hub', 'link']);

/** Returns the role. `store` is a tillsync that is neither a hub nor a branch. */
export function roleOf(config: Pick<Config, 'link' | 'hub'>): (typeof ROLES)[number] {
  return isHub(config) ? 'hub' : isBranch(config) ? 'branch' : 'store';
}

/** Returns the host that identifies the company: the platform's host, or at a branch the hub's host. */
export function companyHost({ platform, link }: Pick<Config, 'platform' | 'link'>): string {
  return new URL(platform.baseUrl || link.hub).host;
}

/** Returns the error for a command that would call the platform from a branch. */
export function branchCallsNobody(): TillsyncError {
  return new TillsyncError('usage', 'This is a branch: only its hub calls the platform.', {
    hint: 'Run the command at the hub.',
  });
}

/** Returns the branches with the names that the hub uses. */
export function configuredNames(
  branches: readonly BranchConfig[],
): { name: string; subsidiaryId: string | null }[] {
  return branches.map((branch) => ({ name: branchName(branch), subsidiaryId: branch.subsidiaryId ?? null }));
}

/** Returns the name that the hub uses for a branch. */
export function branchName({ externalId, subsidiaryId }: BranchConfig): string {
  return externalId ?? subsidiaryId ?? '';
}
