import type { FindingLevel } from '../core/alarm.ts';
import { asTyped } from '../core/errors.ts';
import { type Facts, type FactsOfFinding, type Finding, type FindingCode, flowOf, notedAs } from './facts.ts';
import { FINDINGS } from './findings.ts';

/**
 * - `green`: all is well
 * - `amber`: works, and somebody should look at it today
 * - `red`: orders or changes do not get through, somebody is needed now
 */
export interface Verdict {
  level: 'green' | FindingLevel;
  /** Worst first; empty when all is well. */
  findings: Finding[];
}

/** How things stand: what is wrong, and what may be wrong as well and is not told beside it. */
export interface Standing {
  findings: Finding[];
  hidden: ReadonlySet<FindingCode>;
}

const CODES = Object.keys(FINDINGS) as FindingCode[];

/** What is wrong, worst first: the one place that says so. It depends on nothing but the facts, in any order. */
export function findings(facts: Facts): Finding[] {
  return standing(facts).findings;
}

/** The same, and what is hidden by it: whoever told of that before is not told that it is over. */
export function standing(facts: Facts): Standing {
  const found = new Map<FindingCode, Finding>();
  for (const code of CODES) {
    const { when = () => undefined } = FINDINGS[code];
    const told = when(facts);
    const more = told === undefined ? notedAs(code, facts) : told;
    if (more) found.set(code, findingOf(code, more));
  }
  putCauseFirst(found, facts);
  const isHidden = (code: FindingCode) => {
    const { hiddenBy = [], isToldBeforeSetUp = false } = FINDINGS[code];
    return hiddenBy.some((better) => found.has(better)) || (facts.isSetUp === false && !isToldBeforeSetUp);
  };
  const hidden = new Set([...found.keys()].filter(isHidden));
  const shown = [...found.values()].filter(({ code }) => !hidden.has(code));
  return { findings: shown.sort((a, b) => rank(a) - rank(b)), hidden };
}

/** Whether everything is all right, and if not, what is wrong and what to do. */
export function verdictOf(facts: Facts): Verdict {
  const found = findings(facts);
  return { level: found[0]?.level ?? 'green', findings: found };
}

/** What else tells why no orders are fetched. */
function causesOf(facts: Facts): readonly FindingCode[] {
  const poll = flowOf('orders.poll', facts);
  if (poll?.state === 'blocked') return ['platform.blocked'];
  if (poll?.failure?.code === 'rate-limited') return ['platform.limits-shared'];
  if (poll?.failure?.code.startsWith('storage-')) return ['storage.full', 'storage.failing'];
  return ['orders.unreadable'];
}

/** Why no orders are fetched, where that is known, is as serious as what follows from it, and is told first. */
function putCauseFirst(found: Map<FindingCode, Finding>, facts: Facts): void {
  const stale = found.get('orders.stale');
  const cause = causesOf(facts)
    .map((code) => found.get(code))
    .find((each) => each !== undefined);
  if (!stale || !cause) return;
  found.set('orders.stale', { ...stale, remedy: '' });
  found.set(cause.code, { ...cause, level: stale.level });
}

function findingOf(code: FindingCode, more: FactsOfFinding): Finding {
  const { level, message, remedies, ...row } = FINDINGS[code];
  const remedy = (more.cause && remedies?.[more.cause]) ?? row.remedy;
  const count = more.count ?? null;
  const told = message.replace(': {count}', count === null ? '' : `: ${count}`);
  return { code, level, remedy: asTyped(remedy), detail: null, since: null, ...more, count, message: told };
}

function rank({ code, level }: Finding): number {
  return (level === 'red' ? 0 : CODES.length) + CODES.indexOf(code);
}
