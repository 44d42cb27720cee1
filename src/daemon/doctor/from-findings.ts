import type { Finding, FindingCode } from '../../domain/health/finding.ts';
import type { Verdict } from '../../domain/health/verdict.ts';
import type { Outcome } from './check.ts';

const TRIES_AGAIN =
  'It is tried again by itself; if it stays, see what is wrong with the way to the platform.';

const FOLLOWS = 'It ends with what else is wrong here.';

/** Where a finding sends people to this very command, what to do instead. */
const HERE: Partial<Record<FindingCode, string>> = {
  'orders.stale': 'Check the internet connection of this machine, and what else is wrong here.',
  'outbox.stuck': 'Check the internet connection of this machine, and what else is wrong here.',
  'orders.resuming': 'Wait for two minutes; if it stays, see what else is wrong here.',
  'orders.starting': 'Wait a few minutes after the first start; if it stays, see what else is wrong here.',
  auth: TRIES_AGAIN,
  'orders.poll': TRIES_AGAIN,
  'outbox.push': TRIES_AGAIN,
};

/** What the verdict of the status page says about some things, in the same words; undefined: nothing is wrong. */
export function outcomeOfFindings(
  { findings }: Verdict,
  codes: readonly FindingCode[],
  facts: Outcome['facts'] = {},
  /** Whose details the caller says better. */
  toldBetter: readonly FindingCode[] = [],
): Outcome | undefined {
  const found = findings.filter(({ code }) => codes.includes(code));
  if (found.length === 0) return undefined;
  const remedies = new Set(
    found.map(({ code, remedy }) => (remedy === '' ? FOLLOWS : (HERE[code] ?? remedy))),
  );
  return {
    level: found.some(({ level }) => level === 'red') ? 'fail' : 'warn',
    message: found.map((each) => sentence(each, toldBetter)).join(' '),
    remedy: [...remedies].join(' '),
    facts: { ...facts, findings: found.map(({ code }) => code) },
    ...(found.some(({ code }) => code === 'auth.none' || code === 'auth.locked-out') && {
      needsTokens: true,
    }),
  };
}

function sentence({ code, message, detail }: Finding, toldBetter: readonly FindingCode[]): string {
  return detail === null || toldBetter.includes(code) ? message : `${message} ${detail}`;
}
