import type { ChangeKind } from '../../domain/change/change.ts';
import type { FindingCode } from '../../domain/health/finding.ts';
import type { Freshness, FreshnessSubject } from '../../domain/health/freshness.ts';
import type { Verdict } from '../../domain/health/verdict.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { LastSent } from '../../store/outbox/outbox-queries.ts';
import { type Check, type CheckId, type Outcome, skipped, well } from './check.ts';
import { outcomeOfFindings } from './from-findings.ts';
import { sentChecks } from './sent.ts';
import { since } from './since.ts';

export interface FlowChecksOptions {
  verdict: Verdict;
  freshness: readonly Freshness[];
  running: boolean | null;
  outbox: { pending: number; held: number; sending: number; rejected: number };
  sent: (kind: ChangeKind) => LastSent;
  quarantine: number;
  clock: Clock;
}

interface Flow {
  id: CheckId;
  subject: FreshnessSubject;
  codes: readonly FindingCode[];
  /** Such as `The last poll (GET /order/all) was answered`. */
  worked: string;
}

const FLOWS: readonly Flow[] = [
  {
    id: 'orders',
    subject: 'orders.poll',
    codes: [
      'orders.stale',
      'orders.unreadable',
      'orders.more-pages',
      'orders.starting',
      'orders.resuming',
      'orders.poll',
    ],
    worked: "The last successful poll (not repeated now because of the platform's limit) was",
  },
  {
    id: 'catalog',
    subject: 'catalog.sweep',
    codes: ['catalog.incomplete', 'catalog.sweep'],
    worked: 'The whole catalogue was last read',
  },
  {
    id: 'changes',
    subject: 'outbox.push',
    codes: ['outbox.push'],
    worked: 'The platform last took changes (not tried now, since that would write)',
  },
];

/** How orders, catalogue and changes flow, by what the daemon left in the mirror. */
export function flowChecks(options: FlowChecksOptions): Check[] {
  const { verdict, quarantine, outbox } = options;
  return [
    ...FLOWS.map((flow) => ({ id: flow.id, run: () => flowOutcome(flow, options) })),
    ...sentChecks(options.sent, options.clock),
    { id: 'outbox', run: () => outboxOutcome(verdict, outbox) },
    {
      id: 'quarantine',
      run: () =>
        outcomeOfFindings(verdict, ['quarantine'], { entries: quarantine }) ??
        well('Everything received could be read.', { entries: 0 }),
    },
  ];
}

function flowOutcome(flow: Flow, { verdict, freshness, running, clock }: FlowChecksOptions): Outcome {
  const seen = freshness.find(({ subject }) => subject === flow.subject);
  const facts = { ...seen };
  const found = outcomeOfFindings(verdict, flow.codes, facts);
  if (found) return found;
  if (!seen || seen.state === 'unknown') return skipped('Not tried yet.', null, facts);
  if (seen.state === 'locked-out') return skipped('Waiting for new tokens.', null, facts);
  if (seen.lastOkAt === null) return skipped(seen.message || 'It has not worked yet.', null, facts);
  const worked = `${flow.worked} ${since(seen.lastOkAt, clock)}.`;
  return running === false ? skipped(`tillsync does not run. ${worked}`, null, facts) : well(worked, facts);
}

function outboxOutcome(verdict: Verdict, outbox: FlowChecksOptions['outbox']): Outcome {
  const codes = ['outbox.stuck', 'outbox.rejected', 'outbox.held'] as const;
  const found = outcomeOfFindings(verdict, codes, { ...outbox });
  if (found) {
    const list = found.level === 'fail' ? null : 'To see them, run: {tillsync} outbox list';
    return { ...found, remedy: [found.remedy, list].filter(Boolean).join(' ') };
  }
  const waiting = outbox.pending + outbox.sending;
  return well(
    waiting === 0 ? 'Nothing is waiting to be sent.' : `Waiting to be sent, for a short time: ${waiting}.`,
    {
      ...outbox,
    },
  );
}
