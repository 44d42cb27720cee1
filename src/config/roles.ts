import type { BranchConfig, Config } from './config-type.ts';

/** Whether this tillsync belongs to one branch and has no platform of its own, but a hub (`[link]`). */
export function isBranch({ link }: Pick<Config, 'link'>): boolean {
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

/** How a hub and its branch call the branch. */
export function branchName({ externalId, subsidiaryId }: BranchConfig): string {
  return externalId ?? subsidiaryId ?? '';
}
