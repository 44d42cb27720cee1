import * as z from 'zod';
import { ROLES } from '../config/roles.ts';
import { FRESHNESS_STATES, FRESHNESS_SUBJECTS } from '../core/alarm.ts';
import { isoTime, text, whole } from '../core/schema.ts';
import { FAILURE_CAUSES } from '../health/facts.ts';
import { FINDINGS, type FindingCode } from '../health/findings.ts';
import { branchStatus } from '../link/branch-status.ts';
import { outboxCounts } from './schemas.ts';

/** Schemas of what the local API answers on the state of tillsync and of its branches. */

export const finding = z.object({
  code: z
    .enum(Object.keys(FINDINGS) as FindingCode[])
    .describe('Stays the same; branch on it, never on a sentence'),
  level: z.enum(['amber', 'red']),
  message: z.string().describe('What is wrong'),
  remedy: z.string().describe('What to do about it; empty where it ends with what is told before it'),
  detail: text.describe('The words of the part that noticed it'),
  count: whole.nullable(),
  since: isoTime.nullable(),
  cause: z.enum(FAILURE_CAUSES).optional().describe('Why, where the remedy depends on it'),
  flow: z.enum(FRESHNESS_SUBJECTS).optional().describe('Which flow of `freshness` it is about'),
});

export const verdict = z.object({
  level: z
    .enum(['green', 'amber', 'red'])
    .describe('`amber`: somebody should look today; `red`: orders or changes do not get through'),
  findings: z.array(finding).describe('Worst first'),
});

export const statusAnswer = z.object({
  at: isoTime,
  shop: z.string().describe('What the shop is called: `shop.name`, or the name of the machine'),
  role: z
    .enum(ROLES)
    .describe(
      '`hub`: branches hang on it, see GET /v1/branches; `branch`: it hangs on a hub; `store`: neither',
    ),
  currency: text.describe('Of prices and amounts, as ISO 4217 has it; null: nobody has set it'),
  timezone: z.string().describe("The shop's time zone, `orders.timezone`; the page shows all times in it"),
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
        state: z.enum(FRESHNESS_STATES),
        message: z.string().describe('What happened and what to do; empty when all is well'),
      }),
    )
    .describe('One for each flow'),
  holdBack: z
    .array(
      z.object({
        branch: z.string(),
        isOn: z.boolean(),
        missing: z
          .array(z.enum(['acknowledgement', 'subsidiary_id', 'external_id']))
          .describe('What keeps it from being on; empty where it is on, or off in the configuration'),
      }),
    )
    .describe('Of each branch: whether orders that are not booked are taken off its counts'),
  alarms: z
    .array(
      z.object({
        key: z.string(),
        message: z.string(),
        level: z.enum(['amber', 'red']).nullish().describe('null: as its finding is'),
        raisedAt: isoTime,
        changedAt: isoTime,
      }),
    )
    .describe('What parts of tillsync noted, oldest first; `verdict` has all that is wrong'),
  tokens: z
    .object({
      state: z.enum(['none', 'ok', 'locked-out']),
      savedAt: isoTime.nullable(),
      accessExpiresInMs: z
        .number()
        .nullable()
        .describe('On the platform\u2019s clock; negative: over; null: unknown'),
      refreshExpiresInMs: z.number().nullable(),
      lockedOutBy: z.enum(['refused', 'reply-lost']).nullable(),
    })
    .nullable()
    .describe('null when they cannot be looked up, `tokensFault` says why; and at a branch, which has none'),
  tokensFault: text,
  waits: z
    .array(z.object({ endpoint: z.string(), reason: z.string(), waitMs: z.number() }))
    .describe('Which endpoints of the platform may not be called yet, and why'),
  counts: z.object({
    orders: whole,
    openOrders: whole,
    events: whole.describe('Newest seq of the change feed'),
    quarantine: whole,
    products: whole,
  }),
  outbox: outboxCounts,
  disk: z
    .object({
      freeBytes: whole,
      totalBytes: whole,
      unsafe: z.string().optional().describe('Name of a file system that does not keep databases safe'),
    })
    .nullable()
    .describe('Of the disk that holds the storage directory; null when the system does not tell'),
});

/** States of a hub's branches. */
export const branchesAnswer = z.object({
  at: isoTime,
  branches: z.array(branchStatus).describe('Those of the configuration, those first that need somebody most'),
});
