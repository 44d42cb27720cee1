import { FRESHNESS_SUBJECTS, type Freshness, type FreshnessSubject } from '../core/alarm.ts';
import { counted } from '../core/errors.ts';
import type { DiskSpace } from '../health/facts.ts';
import type { Verdict } from '../health/verdict.ts';
import { type BranchHoldBack, heldBackWords } from '../outbox/ledger/hold-back.ts';
import type { Wait } from '../platform/platform.ts';
import type { AuthReport } from './auth.ts';
import { printable } from './cli.ts';
import { waitText } from './progress.ts';
import type { Say } from './speech.ts';
import { ago } from './table.ts';

/** Report of the command `status`; `--json` prints it as it is. */
export interface StatusReport {
  at: string;
  /** Name of the shop. */
  shop: string;
  /** Currency of prices and amounts; null if it is not configured. */
  currency: string | null;
  storage: string;
  /** The verdict, as the status page shows it. */
  verdict: Verdict;
  /** Disk of the storage directory; null if the system does not report it. */
  disk: DiskSpace | null;
  /** Whether the daemon runs; null if state.db is unreadable. */
  running: boolean | null;
  freshness: readonly Freshness[];
  alarms: readonly { key: string; message: string; raisedAt: string }[];
  /** State of the tokens; null if state.db is unreadable, for the reason in `authFault`. */
  auth: AuthReport | null;
  authFault?: string;
  waits: readonly Wait[];
  /**
   * For each branch, whether pieces of unbooked orders are held back from its counts, and which conditions are
   * missing.
   */
  holdBack: readonly BranchHoldBack[];
  counts: { orders: number; openOrders: number; events: number; quarantine: number };
}

const NAMES: Record<FreshnessSubject, string> = {
  'orders.poll': 'orders by polling',
  'orders.webhook': 'orders by webhook',
  'catalog.sweep': 'catalogue',
  'outbox.push': 'changes to the platform',
  auth: 'tokens',
  backup: 'backup',
  'hub.link': 'hub and branches',
};

const AS_IT_WAS_LEFT = 'State when it stopped:';

const HEADLINES: Record<Verdict['level'], string> = {
  green: 'All is well: orders come in, changes go out.',
  amber: 'Working, but needs attention today:',
  red: 'Action needed now:',
};

/** Returns the report for a person: first what is wrong and what to do, then one sentence for each flow. */
export function statusText(report: StatusReport, say: Say = (english) => english): string {
  const nowMs = Date.parse(report.at);
  const toldBelow = new Set([...report.alarms, ...report.freshness].map(({ message }) => message));
  const lines = [report.shop, ...verdictLines(report.verdict, toldBelow, say), ''];
  // Before the set-up, there is nothing else to report.
  if (isNotSetUp(report.verdict)) return `${lines.slice(0, -1).map(printable).join('\n')}\n`;
  if (report.running === false) lines.push(say(AS_IT_WAS_LEFT));
  for (const { key, message, raisedAt } of report.alarms) {
    lines.push(`${say(`ALARM ${key}, raised ${ago(raisedAt, nowMs)}:`)} ${say(message)}`);
  }
  if (report.alarms.length > 0 || report.running === false) lines.push('');
  const nameWidth = Math.max(...Object.values(NAMES).map((name) => say(name).length)) + 2;
  const bySubject = new Map(
    report.freshness.map((flow) => [flow.subject, sinceNewTokens(flow, report.auth)]),
  );
  for (const subject of FRESHNESS_SUBJECTS) {
    if (subject === 'hub.link' && !bySubject.has(subject)) continue;
    if (subject === 'auth' && report.auth === null && report.authFault === undefined) continue;
    lines.push(
      `${`${say(NAMES[subject])}:`.padEnd(nameWidth)}${say(freshnessSentence(bySubject.get(subject), nowMs))}`,
    );
  }
  const auth = report.auth?.message ?? report.authFault;
  lines.push('', ...(auth === undefined ? [] : [say(auth)]));
  for (const wait of report.waits) lines.push(say(waitText(wait)));
  if (report.holdBack.length > 0) lines.push('', ...holdBackLines(report.holdBack).map(say));
  const { orders, openOrders, events, quarantine } = report.counts;
  lines.push(
    '',
    say(
      `${counted(orders, 'order')} (${openOrders} open), newest event ${events}, ${quarantine} in quarantine`,
    ),
  );
  return `${withoutRepeats(lines).map(printable).join('\n')}\n`;
}

/** A flow that the platform refused for its old tokens waits for its next try once new tokens are stored. */
function sinceNewTokens(flow: Freshness, auth: AuthReport | null): Freshness {
  if (flow.state !== 'locked-out' || auth?.state !== 'ok') return flow;
  return { ...flow, state: 'waiting', message: 'New tokens are stored; the next try follows.' };
}

/** Sentences of which one may repeat another. A shorter one is no remedy. */
const REPEATED_MIN = 30;

/** Removes each sentence that an earlier line has, such as the remedy that several flows share. */
function withoutRepeats(lines: readonly string[]): string[] {
  const said = new Set<string>();
  return lines.map((line) => {
    const parts = line.split(/(?<=[.!?]) (?=\p{Lu})/u);
    const kept = parts.filter((part, at) => at === 0 || part.length < REPEATED_MIN || !said.has(part));
    for (const part of parts) said.add(part);
    return kept.join(' ');
  });
}

/**
 * Returns the headline, then each finding with its remedy. Details in `toldBelow` are left out, because the report
 * shows them further below.
 */
function verdictLines({ level, findings }: Verdict, toldBelow: ReadonlySet<string>, say: Say): string[] {
  const [worst, ...others] = findings.map(({ message, detail, remedy }) => {
    const told = detail === null || toldBelow.has(detail) ? [message, remedy] : [message, detail, remedy];
    return told
      .filter((each) => each !== null && each !== '')
      .map((each) => say(String(each)))
      .join(' ');
  });
  if (worst === undefined) return [say(HEADLINES.green)];
  const headline = isNotSetUp({ findings }) ? worst : `${say(HEADLINES[level])} ${worst}`;
  return [headline, ...others.map((each) => `${say('Also:')} ${each}`)];
}

function isNotSetUp({ findings }: Pick<Verdict, 'findings'>): boolean {
  return findings[0]?.code === 'setup.missing';
}

const STATES: Record<Exclude<Freshness['state'], 'unknown' | 'off'>, string> = {
  ok: 'OK',
  waiting: 'waiting for its turn',
  degraded: 'partly working',
  failing: 'failing',
  blocked: 'blocked by the platform',
  'locked-out': 'needs new tokens',
};

/** Returns the state of one flow as one sentence. */
export function freshnessSentence(freshness: Freshness | undefined, nowMs: number): string {
  if (freshness === undefined || freshness.state === 'unknown') return 'not tried yet';
  const { state, message, lastOkAt, lastTryAt } = freshness;
  if (state === 'off') return message === '' ? 'off in the configuration.' : message;
  const ok = lastOkAt === null ? 'never worked yet' : `last worked ${ago(lastOkAt, nowMs)}`;
  const tried = lastTryAt === null ? '' : `, last tried ${ago(lastTryAt, nowMs)}`;
  const more = state === 'failing' ? `${tried}; retrying` : '';
  return `${STATES[state]}, ${ok}${more}.${message === '' ? '' : ` ${message}`}`;
}

const BRANCHES_NAMED = 10;

/**
 * Returns lines about hold-back. Branches that lack a condition come first, because only a few branches are listed.
 */
function holdBackLines(branches: readonly BranchHoldBack[]): string[] {
  const sorted = branches.toSorted((a, b) => b.missing.length - a.missing.length);
  const lines = sorted.slice(0, BRANCHES_NAMED).map(heldBackWords);
  const on = branches.filter(({ isOn }) => isOn).length;
  const rest = sorted.length - lines.length;
  return rest === 0 ? lines : [...lines, `And ${rest} more; on in ${on} of ${branches.length}.`];
}
