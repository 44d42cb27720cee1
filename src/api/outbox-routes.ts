import type { FastifyRequest } from 'fastify';
import { hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import { originOf } from './access.ts';
import { type ApiFamily, type LocalApiOptions, route } from './api.ts';
import {
  changeAnswer,
  changePath,
  outboxPage,
  outboxQuery,
  releaseAnswer,
  releaseRequest,
} from './schemas.ts';
import { errorBody, statusOf } from './server.ts';

/** Routes `GET /outbox`, `GET /outbox/ID`, and a person's decisions: retry, drop, release. */
export function outboxRoutes({ parts, clock, apiKey }: LocalApiOptions): ApiFamily {
  const { outbox } = parts;
  const by = (request: FastifyRequest) => originOf(request, apiKey !== undefined);
  const find = (changeId: number) =>
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
  const decision = (
    action: string,
    summary: string,
    decide: (changeId: number, by: string) => Promise<unknown>,
  ) =>
    route({
      method: 'post',
      path: `/outbox/{changeId}/${action}`,
      operationId: `${action}Change`,
      summary,
      params: changePath,
      answer: changeAnswer,
      handle: async ({ params: { changeId }, request, reply }) => {
        try {
          await decide(changeId, by(request));
        } catch (error) {
          if (!hasCode(error, 'conflict')) throw error;
          // With the change, so that nobody has to ask what it is now.
          reply.code(statusOf(error.code));
          return JSON.stringify({ ...errorBody(error), ...(await find(changeId)) });
        }
        return find(changeId);
      },
    });
  const routes = [
    route({
      method: 'get',
      path: '/outbox',
      operationId: 'listChanges',
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
      summary: 'One change, and the one that took its place',
      params: changePath,
      answer: changeAnswer,
      handle: ({ params }) => find(params.changeId),
    }),
    decision('retry', 'Hand a rejected change over once more', (id, who) => outbox.retry(id, who)),
    decision('drop', 'Give up a change that waits, is held or was rejected', (id, who) =>
      outbox.drop(id, who),
    ),
    decision('release', 'Let a held change go', (changeId, who) => outbox.release({ changeId }, who)),
    route({
      method: 'post',
      path: '/outbox/release',
      operationId: 'releaseChanges',
      summary: 'Let go all changes that a guard rail holds',
      body: releaseRequest,
      answer: releaseAnswer,
      handle: async ({ body, request }) => ({ released: await outbox.release(body, by(request)) }),
    }),
  ];
  return { routes };
}
