import { configuredNames } from '../config/roles.ts';
import { whenFree } from '../core/loop.ts';
import { isoUtc } from '../core/time.ts';
import { branchBoard } from '../link/branch-status.ts';
import { type ApiFamily, type LocalApiOptions, route } from './api.ts';
import { branchesAnswer } from './status-schemas.ts';

/** Returns the route `GET /branches`, which only a hub has. */
export function branchRoutes({ services: { config, mirror, state }, clock }: LocalApiOptions): ApiFamily {
  const list = route({
    method: 'get',
    path: '/branches',
    operationId: 'listBranches',
    may: ['screen'],
    summary: 'How each branch of this hub fares, and where to look',
    answer: branchesAnswer,
    handle: () =>
      whenFree(clock, () => {
        const nowMs = clock.nowMs();
        const names = state.hub.open(configuredNames(config.branches));
        const invited = state.hub.branches();
        return { at: isoUtc(nowMs), branches: mirror.read((db) => branchBoard(db, names, invited, nowMs)) };
      }),
  });
  return { tag: 'status', routes: [list] };
}
