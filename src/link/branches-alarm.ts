import type { FindingLevel } from '../core/alarm.ts';
import { firstNames } from '../core/errors.ts';
import { type Cause, type ExaminedBranch, LOST_AFTER_MS } from './branch-status.ts';

/** Makes one alarm of all faults of the hub's branches, with the level of the worst branch. */

const SILENT_AFTER_MS = 180_000;
/** Reasons that the alarm leaves out, because the hub's own findings `outbox.held` and `hub.unapplied` report them. */
const TOLD_BY_HUB: ReadonlySet<Cause['reason']> = new Set<Cause['reason']>(['outbox.held', 'quarantine']);

export interface BranchesAlarmFacts {
  branches: readonly ExaminedBranch[];
  /** True if the hub itself gets no orders, so that its branches get none either. */
  areOrdersStale: boolean;
  /** Time at which the hub connected to the server. No report of a branch can arrive earlier. */
  connectedAtMs: number;
  nowMs: number;
}

interface Trouble {
  branch: string;
  level: FindingLevel;
  message: string;
}

/** Returns one alarm for the faults of all branches, or null if there are none. */
export function branchesAlarm(facts: BranchesAlarmFacts): Omit<Trouble, 'branch'> | null {
  const troubles = facts.branches.flatMap((branch) => troubleOf(branch, facts) ?? []);
  // [amber B1, red B2, amber B3] → [red B2, amber B1, amber B3]
  const isRed = ({ level }: Trouble) => level === 'red';
  const worstFirst = [...troubles.filter(isRed), ...troubles.filter((each) => !isRed(each))];
  const [worst] = worstFirst;
  if (worst === undefined) return null;
  const named = firstNames(worstFirst, ({ branch, message }) => `${branch}: ${message}`);
  return { level: worst.level, message: named.join(' ') };
}

function troubleOf({ found, causes }: ExaminedBranch, facts: BranchesAlarmFacts): Trouble | null {
  const { branch, joinedAt, seenAt, oldestWaitingAt } = found;
  if (joinedAt === null) {
    const [first] = causes;
    if (first?.level !== 'amber') return null;
    const { message } = first;
    return {
      branch,
      level: 'amber',
      message: first.command === null ? message : `${message} ${first.command}`,
    };
  }
  const { connectedAtMs, nowMs } = facts;
  const seenMs = seenAt === null ? 0 : Date.parse(seenAt);
  // After an outage of the server, each branch again has `SILENT_AFTER_MS` to report.
  const isSilent = nowMs - Math.max(seenMs, connectedAtMs) >= SILENT_AFTER_MS;
  if (seenMs < connectedAtMs && !isSilent) return null;
  const [worst] = causes.filter(({ reason }) => {
    if (reason === 'absent') return isSilent;
    return !TOLD_BY_HUB.has(reason) && !(reason === 'orders.stale' && facts.areOrdersStale);
  });
  if (worst?.level === 'red') return { branch, level: 'red', message: worst.message };
  if (oldestWaitingAt !== null && nowMs - Date.parse(oldestWaitingAt) >= LOST_AFTER_MS) {
    const message = [worst?.message, 'Its changes wait there for the hub.'].filter(Boolean).join(' ');
    return { branch, level: 'red', message };
  }
  return worst ? { branch, level: 'amber', message: worst.message } : null;
}
