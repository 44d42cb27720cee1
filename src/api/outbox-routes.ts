import type { ServerResponse } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type * as z from 'zod';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { whenFree } from '../core/loop.ts';
import { originOf } from './access.ts';
import { type ApiFamily, type ApiRoute, type LocalApiOptions, route } from './api.ts';
import {
  changeAnswer,
  changeConflict,
  changePath,
  discardAnswer,
  discardRequest,
  outboxPage,
  outboxQuery,
  releaseAnswer,
  releaseRequest,
} from './change-schemas.ts';
import { LongPolls } from './long-polls.ts';
import { errorBody, statusOf } from './server.ts';

type FindChange = (changeId: number) => Promise<z.output<typeof changeAnswer>>;

function changeFinder({ services: { outbox }, clock }: LocalApiOptions): FindChange {
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

/** Returns the routes for a person's decisions about a change: retry, discard, release. */
function decisionRoutes({ services: { outbox } }: LocalApiOptions, find: FindChange): ApiRoute[] {
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
          // The answer includes the change, so that the client need not request its state.
          reply.code(statusOf(error.code));
          return JSON.stringify({ ...errorBody(error), ...(await find(changeId)) });
        }
        return find(changeId);
      },
    });
  return [
    decision('retry', 'Hand a rejected change over once more', (id, who) => outbox.retry(id, who)),
    decision('discard', 'Discard a change that waits, is held or was rejected', (id, who) =>
      outbox.discard(id, who),
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
    route({
      method: 'post',
      path: '/outbox/discard',
      operationId: 'discardChanges',
      may: ['decide'],
      summary: 'Discard all rejected changes, or those of one origin',
      body: discardRequest,
      answer: discardAnswer,
      handle: async ({ body, request }) => ({ discarded: await outbox.discardAll(body, originOf(request)) }),
    }),
  ];
}

function isAhead(after: number, newest: number): TillsyncError {
  const message = `The newest change settled as ${newest}, so nothing can come after ${after}.`;
  return new TillsyncError('feed-restarted', message, {
    hint: 'The mirror was made anew or is an older copy. Start again with after=0; changes that you know come again.',
  });
}

/** Makes the function that returns a page of settled changes, in the order in which they settled. */
function settledFeed({ services: { outbox }, clock }: LocalApiOptions, polls: LongPolls) {
  return async (
    { wait, before, ...filter }: z.output<typeof outboxQuery>,
    from: number | 'newest',
    request: FastifyRequest,
    response: ServerResponse,
  ): Promise<string> => {
    if (before !== undefined) throw new TillsyncError('usage', 'Give before or after, not both.');
    let after = from === 'newest' ? Number.MAX_SAFE_INTEGER : from;
    const read = () =>
      whenFree(clock, () => {
        const { changes, newest } = outbox.settledAfter(after, filter);
        if (from !== 'newest' && after > newest) throw isAhead(after, newest);
        const next = changes.length < filter.limit ? newest : (changes.at(-1)?.settledSeq ?? newest);
        after = next;
        return {
          isEmpty: changes.length === 0,
          text: JSON.stringify({ changes, before: null, next, newest }),
        };
      });
    if (wait === 0) return (await read()).text;
    return (await polls.wait({ request, response, waitMs: wait * 1_000 }, read)).text;
  };
}

/** Returns the routes `GET /outbox`, `GET /outbox/ID`, and those for a person's decisions. */
export function outboxRoutes(options: LocalApiOptions): ApiFamily {
  const { services, clock } = options;
  const { outbox } = services;
  const polls = new LongPolls(options);
  const settledPage = settledFeed(options, polls);
  const find = changeFinder(options);
  const routes = [
    route({
      method: 'get',
      path: '/outbox',
      operationId: 'listChanges',
      may: ['stock', 'prices', 'screen'],
      summary: 'Changes on their way to the platform, and what became of them',
      description:
        'With `after` it is a feed: each change once more whenever it settles, so that a till learns of each outcome by one cursor.',
      query: outboxQuery,
      answer: outboxPage,
      refusals: [429],
      handle: async ({ query, request, reply, takePlace }) => {
        const { limit, after, wait } = query;
        // A request that waits has a place among those that wait.
        if (wait === 0) await takePlace();
        if (after !== undefined) return await settledPage(query, after, request, reply.raw);
        if (wait > 0) {
          throw new TillsyncError('usage', 'wait is for the feed of settled changes.', {
            hint: 'Give after, too: after=newest begins at its end.',
          });
        }
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
  return { tag: 'changes', prepare: (app) => polls.endWith(app), routes };
}
