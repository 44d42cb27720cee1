import { z } from 'zod';
import { FINDING_SENTENCES, type FindingCode } from '../../domain/health/finding.ts';
import { FRESHNESS_SUBJECTS } from '../../domain/health/freshness.ts';
import { isoTime, text } from './common.ts';
import { outboxCounts } from './outbox.ts';

const ms = z.number().nullable();

const FINDING_CODES = Object.keys(FINDING_SENTENCES) as FindingCode[];

const verdict = z.object({
  level: z
    .enum(['green', 'amber', 'red'])
    .describe('`amber`: somebody should look today; `red`: orders or changes do not get through'),
  findings: z
    .array(
      z.object({
        code: z.enum(FINDING_CODES).describe('Stays the same; branch on it, never on a sentence'),
        level: z.enum(['amber', 'red']),
        message: z.string().describe('What is wrong'),
        remedy: z.string().describe('What to do about it; empty where it ends with what is told before it'),
        detail: text.describe('The words of the part that noticed it'),
        count: z.number().int().nullable(),
        since: isoTime.nullable(),
      }),
    )
    .describe('Worst first'),
});

export const statusAnswer = z.object({
  at: isoTime,
  shop: z.string().describe('What the shop is called: `alarms.name`, or the name of the machine'),
  commands: z
    .object({
      tillsync: z.string(),
      start: z.string(),
      restart: z.string(),
      stop: z.string(),
      enable: z.string(),
      journal: z.string(),
      storage: z.string().describe('The storage directory'),
    })
    .describe('How the commands that texts name are typed on this machine'),
  verdict: verdict.describe('Whether everything is all right, and if not, what to do'),
  versions: z.object({ tillsync: z.string(), node: z.string() }),
  freshness: z
    .array(
      z.object({
        subject: z.enum(FRESHNESS_SUBJECTS),
        lastOkAt: isoTime.nullable(),
        lastTryAt: isoTime.nullable(),
        state: z.enum(['unknown', 'ok', 'waiting', 'degraded', 'failing', 'blocked', 'locked-out', 'off']),
        message: z.string().describe('What happened and what to do; empty when all is well'),
      }),
    )
    .describe('One for each flow'),
  alarms: z
    .array(z.object({ key: z.string(), message: z.string(), raisedAt: isoTime, changedAt: isoTime }))
    .describe('Those that are up, oldest first'),
  tokens: z
    .object({
      state: z.enum(['none', 'ok', 'locked-out']),
      savedAt: isoTime.nullable(),
      accessExpiresInMs: ms.describe('On the platform\u2019s clock; negative: over; null: unknown'),
      refreshExpiresInMs: ms,
      lockedOutBy: z.enum(['refused', 'reply-lost']).nullable(),
    })
    .nullable()
    .describe('null when they cannot be looked up; `tokensFault` says why'),
  tokensFault: text,
  waits: z
    .array(z.object({ endpoint: z.string(), reason: z.string(), waitMs: z.number() }))
    .describe('Which endpoints of the platform may not be called yet, and why'),
  counts: z.object({
    orders: z.number().int(),
    openOrders: z.number().int(),
    events: z.number().int().describe('Newest seq of the change feed'),
    quarantine: z.number().int(),
    products: z.number().int(),
  }),
  outbox: outboxCounts,
  disk: z
    .object({ freeBytes: z.number().int(), totalBytes: z.number().int() })
    .nullable()
    .describe('Of the disk that holds the storage directory; null when the system does not tell'),
});
