import { configuredBranches } from '../app/read-only-services.ts';
import type { Config } from '../config/config-type.ts';
import { configuredNames } from '../config/roles.ts';
import type { FeedBranch } from '../link/hub-feed.ts';
import type { HubRows } from '../link/hub-state.ts';

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
