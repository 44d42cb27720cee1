import { z } from 'zod';
import { TillsyncError, whenFree } from '../core/errors.ts';
import type { Clock } from '../core/time.ts';
import type { ChangeKind } from '../outbox/change.ts';
import type { Guard } from '../outbox/guard-rails.ts';
import { type ApiFamily, isoTime, limitOf, type RouteDoc, readAs, text } from './api.ts';

export const OUTBOX_STATES = ['pending', 'sending', 'done', 'rejected', 'superseded'] as const;

const changeBody = z
  .record(z.string(), z.unknown())
  .describe('In the platform\u2019s item shape; of an unread item what was handed over');

/** One change on its way to the platform. */
export const change = z.object({
  changeId: z.number().int(),
  kind: z.enum(['product', 'stock']),
  target: z.string().describe('What it is for; two waiting changes of one kind never have the same'),
  body: changeBody,
  state: z.enum(OUTBOX_STATES),
  attempts: z.number().int(),
  message: text.describe('Why it is held, rejected or replaced'),
  createdAt: isoTime,
  settledAt: isoTime.nullable(),
  heldGuard: text.describe('The guard rail that holds it for a person'),
  source: z.string().describe('Way in: inbox, http, cli or hold-back'),
  reference: text,
  replaced: z.number().int().describe('How many earlier values for the target went into it'),
  supersededBy: z.number().int().nullable(),
});

export const outboxQuery = z.strictObject({
  state: z
    .enum([...OUTBOX_STATES, 'held'])
    .optional()
    .describe('`held`: the part of `pending` that waits for a person'),
  kind: z.enum(['product', 'stock']).optional(),
  before: z.coerce
    .number()
    .int()
    .min(1)
    .optional()
    .describe('Only changes with a lower id, for the next page'),
  limit: limitOf(100, 1000),
});

export const outboxCounts = z.object({
  pending: z.number().int().describe('Waiting, without those that are held'),
  held: z.number().int(),
  needsRead: z.number().int().describe('Waiting for their product to be read'),
  sending: z.number().int(),
  rejected: z.number().int(),
  oldestPendingAt: isoTime.nullable(),
});

export const outboxPage = z.object({
  changes: z.array(change).describe('Newest first'),
  before: z.number().int().nullable().describe('For the next page; null: there is none'),
});

export const changePath = z.strictObject({ changeId: z.coerce.number().int().min(1) });

export const changeAnswer = z.object({
  change,
  became: change.nullable().describe('The change that took its place, where one did'),
});

export const releaseRequest = z.strictObject({
  guard: z
    .enum(['zero-items', 'price-factor', 'missing-share', 'restored'])
    .nullable()
    .describe('Lets go what this guard rail holds; null: all that is held'),
});
export const releaseAnswer = z.object({ released: z.number().int() });

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
