import type { FindingLevel } from '../core/alarm.ts';
import { formatCommands } from '../core/errors.ts';
import { type Facts, type FactsOfFinding, type Finding, type FindingCode, flowOf, notedAs } from './facts.ts';
import { FINDINGS } from './findings.ts';

/**
 * - `green`: all is well
 * - `amber`: works, but somebody should look at it today
 * - `red`: orders or changes do not get through; somebody is needed now
 */
export interface Verdict {
  level: 'green' | FindingLevel;
  /** The findings, worst first; empty if all is well. */
  findings: Finding[];
}

/** The findings, and the codes of findings that they hide. */
export interface Assessment {
  findings: Finding[];
  hidden: ReadonlySet<FindingCode>;
}

const CODES = Object.keys(FINDINGS) as FindingCode[];

/**
 * Returns the present findings, worst first, and the codes of hidden ones, of which nobody must be told that they are
 * over. Both follow from the facts alone.
 */
export function assess(facts: Facts): Assessment {
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

/** Returns the verdict: the level of the worst finding, and all findings. */
export function verdictOf(facts: Facts): Verdict {
  const { findings: found } = assess(facts);
  return { level: found[0]?.level ?? 'green', findings: found };
}

/** Returns the codes of findings that, if present, explain why no orders are fetched. */
function causesOf(facts: Facts): readonly FindingCode[] {
  const poll = flowOf('orders.poll', facts);
  if (poll?.state === 'blocked') return ['platform.blocked'];
  if (poll?.failure?.code === 'rate-limited') return ['platform.limits-shared'];
  if (poll?.failure?.code.startsWith('storage-')) return ['storage.full', 'storage.failing'];
  return ['orders.unreadable'];
}

/**
 * If another finding causes `orders.stale`, gives that finding the level of `orders.stale`, and removes the remedy of
 * `orders.stale`.
 */
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
  const { level, message, remedies, flow, ...row } = FINDINGS[code];
  const remedy = (more.cause && remedies?.[more.cause]) ?? row.remedy;
  const count = more.count ?? null;
  const told = message.replace(': {count}', count === null ? '' : `: ${count}`);
  const finding = { code, level, remedy: formatCommands(remedy), detail: null, since: null, ...more, count };
  return { ...finding, message: told, ...(flow && { flow }) };
}

function rank({ code, level }: Finding): number {
  return (level === 'red' ? 0 : CODES.length) + CODES.indexOf(code);
}
