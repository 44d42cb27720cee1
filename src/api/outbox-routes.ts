import type * as z from 'zod';
import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import { originOf } from './access.ts';
import { type ApiFamily, type ApiRoute, type LocalApiOptions, route } from './api.ts';
import {
  changeAnswer,
  changeConflict,
  changePath,
  outboxPage,
  outboxQuery,
  releaseAnswer,
  releaseRequest,
} from './schemas.ts';
import { errorBody, statusOf } from './server.ts';

type FindChange = (changeId: number) => Promise<z.output<typeof changeAnswer>>;

function changeFinder({ parts: { outbox }, clock }: LocalApiOptions): FindChange {
  return (changeId) =>
    whenFree(clock, () => {
      const change = outbox.get(changeId);
      if (!change) {
        throw new TillsyncError('not-found', `There is no change ${changeId} in the outbox.`, {
          hint: 'GET /v1/outbox lists them; settled ones are deleted after a while.',
        });
      }
      const last = outbox.follow(changeId);
      return { change, became: last && last.changeId !== changeId ? last : null };
    });
}

/** A person's decisions: retry, drop, release. */
function decisionRoutes({ parts: { outbox } }: LocalApiOptions, find: FindChange): ApiRoute[] {
  const decision = (
    action: string,
    summary: string,
    decide: (changeId: number, by: string) => Promise<unknown>,
  ) =>
    route({
      method: 'post',
      path: `/outbox/{changeId}/${action}`,
      operationId: `${action}Change`,
      may: ['decide'],
      summary,
      params: changePath,
      answer: changeAnswer,
      refusals: [404],
      refused: { statuses: [409], answer: changeConflict },
      handle: async ({ params: { changeId }, request, reply }) => {
        try {
          await decide(changeId, originOf(request));
        } catch (error) {
          if (!hasCode(error, 'conflict')) throw error;
          // With the change, so that nobody has to ask what it is now.
          reply.code(statusOf(error.code));
          return JSON.stringify({ ...errorBody(error), ...(await find(changeId)) });
        }
        return find(changeId);
      },
    });
  return [
    decision('retry', 'Hand a rejected change over once more', (id, who) => outbox.retry(id, who)),
    decision('drop', 'Give up a change that waits, is held or was rejected', (id, who) =>
      outbox.drop(id, who),
    ),
    decision('release', 'Let a held change go', (changeId, who) => outbox.release({ changeId }, who)),
    route({
      method: 'post',
      path: '/outbox/release',
      operationId: 'releaseChanges',
      may: ['decide'],
      summary: 'Let go all changes that a guard rail holds',
      body: releaseRequest,
      answer: releaseAnswer,
      handle: async ({ body, request }) => ({ released: await outbox.release(body, originOf(request)) }),
    }),
  ];
}

/** Routes `GET /outbox`, `GET /outbox/ID`, and a person's decisions. */
export function outboxRoutes(options: LocalApiOptions): ApiFamily {
  const { parts, clock } = options;
  const { outbox } = parts;
  const find = changeFinder(options);
  const routes = [
    route({
      method: 'get',
      path: '/outbox',
      operationId: 'listChanges',
      may: ['stock', 'prices', 'screen'],
      summary: 'Changes on their way to the platform, and what became of them',
      query: outboxQuery,
      answer: outboxPage,
      handle: async ({ query }) => {
        const { limit } = query;
        const found = await whenFree(clock, () => outbox.list({ ...query, limit: limit + 1 }));
        const changes = found.slice(0, limit);
        return { changes, before: found.length > limit ? (changes.at(-1)?.changeId ?? null) : null };
      },
    }),
    route({
      method: 'get',
      path: '/outbox/{changeId}',
      operationId: 'getChange',
      may: ['stock', 'prices', 'screen'],
      summary: 'One change, and the one that took its place',
      params: changePath,
      answer: changeAnswer,
      refusals: [404],
      handle: ({ params }) => find(params.changeId),
    }),
    ...decisionRoutes(options, find),
  ];
  return { tag: 'changes', routes };
}
