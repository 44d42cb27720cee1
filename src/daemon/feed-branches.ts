import { configuredBranches } from '../app/read-only-services.ts';
import type { Config } from '../config/config-type.ts';
import { configuredNames } from '../config/roles.ts';
import type { FeedBranch } from '../link/hub-feed.ts';
import type { HubRows, NamedBranch } from '../link/hub-state.ts';

/** Returns the configured branches that are not closed, in the form that the link uses. */
export function feedBranches(config: Config, rows: Pick<HubRows, 'named'>): FeedBranch[] {
  const named = rows.named(configuredNames(config.branches));
  return configuredBranches(config).flatMap((ids, i) => {
    const { [i]: own = {} } = config.branches;
    const { [i]: branch } = named;
    if (!branch || branch.isClosed) return [];
    return [{ ...ids, ...branch, mayPrice: own.mayPrice ?? false, isWatched: own.watched ?? true }];
  });
}

/** Returns the branch on the hub's machine; undefined if there is none. */
export function ownBranch(config: Config, rows: Pick<HubRows, 'named'>): NamedBranch | undefined {
  // The shop is not found by its name alone, because the name may be the permanent id of a branch that had it first.
  return rows.named(configuredNames(config.branches)).find(({ name }) => name === config.hub.store);
}
