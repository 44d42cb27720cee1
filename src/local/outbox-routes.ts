import { whenFree } from '../domain/busy.ts';
import type { ChangeKind } from '../domain/change/change.ts';
import type { Guard } from '../domain/change/guard-rails.ts';
import { TillsyncError } from '../domain/errors.ts';
import type { Clock } from '../domain/time/clock.ts';
import { type ApiFamily, type RouteDoc, readAs } from './api-route.ts';
import {
  changeAnswer,
  changePath,
  type OUTBOX_STATES,
  outboxPage,
  outboxQuery,
  releaseAnswer,
  releaseRequest,
} from './schemas/outbox.ts';

/** A change as people and the POS see it. */
export interface OutboxChange {
  changeId: number;
  kind: ChangeKind;
  target: string;
  body: object;
  state: (typeof OUTBOX_STATES)[number];
  attempts: number;
  message: string | null;
  createdAt: string;
  settledAt: string | null;
  heldGuard: Guard | null;
  source: string;
  reference: string | null;
  replaced: number;
  supersededBy: number | null;
}

export interface OutboxListFilter {
  /** `held` is the part of `pending` that waits for a person. */
  state?: OutboxChange['state'] | 'held' | undefined;
  kind?: ChangeKind | undefined;
  /** Only changes with a lower id. */
  before?: number | undefined;
  limit: number;
}

/** Reads are short and may throw `storage-…`; decisions are durable when they resolve, or throw why not. */
export interface OutboxDesk {
  /** Newest first. */
  list(filter: OutboxListFilter): readonly OutboxChange[];
  get(changeId: number): OutboxChange | undefined;
  /** The change itself, or the one that took its place in the end. */
  follow(changeId: number): OutboxChange | undefined;
  /** Hands a rejected change over once more, as a new one. */
  retry(changeId: number): Promise<void>;
  /** Gives up a change that waits, is held or was rejected. */
  drop(changeId: number): Promise<void>;
  /** Lets held changes go; returns how many. */
  release(which: { changeId: number } | { guard: Guard | null }): Promise<number>;
}

export interface OutboxRoutesOptions {
  outbox: OutboxDesk;
  clock: Clock;
}

const ACTIONS = ['retry', 'drop', 'release'] as const;
type Action = (typeof ACTIONS)[number];

const SUMMARY: Record<Action, string> = {
  retry: 'Hand a rejected change over once more',
  drop: 'Give up a change that waits, is held or was rejected',
  release: 'Let a held change go',
};

const docs = (): readonly RouteDoc[] => [
  {
    method: 'get',
    path: '/outbox',
    operationId: 'listChanges',
    summary: 'Changes on their way to the platform, and what became of them',
    query: outboxQuery,
    answers: { 200: outboxPage },
  },
  {
    method: 'get',
    path: '/outbox/{changeId}',
    operationId: 'getChange',
    summary: 'One change, and the one that took its place',
    params: changePath,
    answers: { 200: changeAnswer },
  },
  ...ACTIONS.map(
    (action): RouteDoc => ({
      method: 'post',
      path: `/outbox/{changeId}/${action}`,
      operationId: `${action}Change`,
      summary: SUMMARY[action],
      params: changePath,
      answers: { 200: changeAnswer },
    }),
  ),
  {
    method: 'post',
    path: '/outbox/release',
    operationId: 'releaseChanges',
    summary: 'Let go all changes that a guard rail holds',
    body: releaseRequest,
    answers: { 200: releaseAnswer },
  },
];

/** `GET /outbox`, `GET /outbox/ID`, and what a person decides: retry, drop, release. */
export function outboxRoutes({ outbox, clock }: OutboxRoutesOptions): ApiFamily {
  const act: Record<Action, (changeId: number) => Promise<unknown>> = {
    retry: (changeId) => outbox.retry(changeId),
    drop: (changeId) => outbox.drop(changeId),
    release: (changeId) => outbox.release({ changeId }),
  };
  const answer = (changeId: number) => whenFree(clock, () => changeOf(outbox, changeId));
  return {
    docs,
    plugin: async (app) => {
      app.get('/outbox', async (request) => {
        const filter = readAs(outboxQuery, request.query, 'query');
        const found = await whenFree(clock, () => outbox.list({ ...filter, limit: filter.limit + 1 }));
        const changes = found.slice(0, filter.limit);
        const before = found.length > filter.limit ? (changes.at(-1)?.changeId ?? null) : null;
        return { changes, before };
      });
      app.get('/outbox/:changeId', ({ params }) => answer(readAs(changePath, params, 'path').changeId));
      for (const action of ACTIONS) {
        app.post(`/outbox/:changeId/${action}`, async ({ params }) => {
          const { changeId } = readAs(changePath, params, 'path');
          await act[action](changeId);
          return answer(changeId);
        });
      }
      app.post('/outbox/release', async ({ body }) => {
        const { guard } = readAs(releaseRequest, body, 'body');
        return { released: await outbox.release({ guard }) };
      });
    },
  };
}

function changeOf(outbox: OutboxDesk, changeId: number) {
  const change = outbox.get(changeId);
  if (!change) {
    throw new TillsyncError('not-found', `There is no change ${changeId} in the outbox.`, {
      hint: 'GET /v1/outbox lists them; settled ones are deleted after a while.',
    });
  }
  const last = outbox.follow(changeId);
  return { change, became: last && last.changeId !== changeId ? last : null };
}
