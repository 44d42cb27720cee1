import type { ChangeKind } from '../../domain/change/change.ts';
import type { Clock } from '../../domain/time/clock.ts';
import type { LastSent } from '../../store/outbox/outbox-queries.ts';
import { type Check, type CheckId, type Outcome, skipped, warned, well } from './check.ts';
import { since } from './since.ts';

/** One that did not arrive once or twice is everyday: a restart is enough. */
const TROUBLED_FROM = 3;

const KINDS: readonly { kind: ChangeKind; id: CheckId; what: string }[] = [
  { kind: 'stock', id: 'changes.stock', what: 'stock' },
  { kind: 'product', id: 'changes.products', what: 'price or text' },
];

/** The endpoints that write, by what became of the last changes that were really sent: nothing is sent for it. */
export function sentChecks(lastSent: (kind: ChangeKind) => LastSent, clock: Clock): Check[] {
  return KINDS.map(({ kind, id, what }) => ({ id, run: () => sentOutcome(lastSent(kind), what, clock) }));
}

function sentOutcome({ takenAt, refused, trouble }: LastSent, what: string, clock: Clock): Outcome {
  const facts = { takenAt, refused, trouble };
  const taken = takenAt === null ? `No ${what} was taken yet.` : `Last taken ${since(takenAt, clock)}.`;
  if (trouble !== null && trouble.attempts >= TROUBLED_FROM) {
    const message = `A ${what} that was sent ${trouble.attempts} times waits to be sent again: "${trouble.message}" ${taken}`;
    return warned(message, 'It is sent again by itself; see: {tillsync} outbox list --state pending', facts);
  }
  if (refused !== null && (takenAt === null || refused.at > takenAt)) {
    const when = since(refused.at, clock);
    const message = `The last ${what} that was sent was refused ${when}: "${refused.message}". ${taken}`;
    return warned(message, 'Look at it with: {tillsync} outbox list --state rejected', facts);
  }
  if (takenAt === null) return skipped(`No ${what} was sent yet.`, null, facts);
  if (refused === null) return well(taken, facts);
  return well(`${taken} One was refused ${since(refused.at, clock)}: "${refused.message}".`, facts);
}
