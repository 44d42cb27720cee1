import { shopName } from '../app/installation.ts';
import type { holdBackStates, ReadOnlyServices, storedVerdict } from '../app/read-only-services.ts';
import { configWarnings, ownStoreConfig, readConfig } from '../config/config.ts';
import type { Config } from '../config/config-type.ts';
import { isBranch } from '../config/roles.ts';
import { FRESHNESS_SUBJECTS, type Freshness, type FreshnessSubject } from '../core/alarm.ts';
import { counted, hasCode, TillsyncError, whenFree } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { DiskSpace } from '../health/facts.ts';
import type { Verdict } from '../health/verdict.ts';
import { type BranchHoldBack, heldBackWords } from '../outbox/hold-back.ts';
import type { Wait } from '../platform/platform.ts';
import { type AuthReport, authReport } from './auth.ts';
import { type Cli, printable } from './cli.ts';
import { command, type Result, sourceOf, withReaders } from './command.ts';
import { waitText } from './progress.ts';
import { type Say, speaker, spokenError } from './speech.ts';
import { ago } from './table.ts';

/** The report of `status`; with `--json` it is the document. */
export interface StatusReport {
  at: string;
  /** Name of the shop. */
  shop: string;
  /** Currency of prices and amounts; null if not set. */
  currency: string | null;
  storage: string;
  /** The branch at the hub's place, and the directory of its POS's files; left out if there is none. */
  ownStore?: { branch: string; storage: string };
  /** The verdict, as the status page shows it. */
  verdict: Verdict;
  /** Disk of the storage directory; null if the system does not say. */
  disk: DiskSpace | null;
  /** Whether the daemon runs; null when state.db is unreadable. */
  running: boolean | null;
  freshness: readonly Freshness[];
  alarms: readonly { key: string; message: string; raisedAt: string }[];
  /** null when state.db is unreadable; `authFault` says why. */
  auth: AuthReport | null;
  authFault?: string;
  waits: readonly Wait[];
  /** For each branch, whether unbooked orders are held back from its counts, and what is missing for it. */
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
/** Returns the report for a person: what is wrong and what to do first, then one sentence per flow. */
export function statusText(report: StatusReport, say: Say = (english) => english): string {
  const nowMs = Date.parse(report.at);
  const toldBelow = new Set([...report.alarms, ...report.freshness].map(({ message }) => message));
  const lines = [report.shop, ...verdictLines(report.verdict, toldBelow, say), ''];
  // Before the set-up, the rest of the report has no content.
  if (isNotSetUp(report.verdict)) return `${lines.slice(0, -1).map(printable).join('\n')}\n`;
  if (report.running === false) lines.push(say(AS_IT_WAS_LEFT));
  for (const { key, message, raisedAt } of report.alarms) {
    lines.push(`${say(`ALARM ${key}, raised ${ago(raisedAt, nowMs)}:`)} ${say(message)}`);
  }
  if (report.alarms.length > 0 || report.running === false) lines.push('');
  const nameWidth = Math.max(...Object.values(NAMES).map((name) => say(name).length)) + 2;
  const bySubject = new Map(report.freshness.map((freshness) => [freshness.subject, freshness]));
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
  if (report.ownStore) {
    const { branch, storage } = report.ownStore;
    lines.push(say(`own shop ${branch}: its POS uses ${storage}; how it fares: tillsync status --own-store`));
  }
  lines.push(
    '',
    say(
      `${counted(orders, 'order')} (${openOrders} open), newest event ${events}, ${quarantine} in quarantine`,
    ),
  );
  return `${lines.map(printable).join('\n')}\n`;
}

/** Returns the headline, then each finding with its remedy. `toldBelow` are details that follow anyway. */
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

/** Returns one flow's state in one sentence. */
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

/** Branches for which a condition is missing come first, because a company may have many branches. */
function holdBackLines(branches: readonly BranchHoldBack[]): string[] {
  const sorted = branches.toSorted((a, b) => b.missing.length - a.missing.length);
  const lines = sorted.slice(0, BRANCHES_NAMED).map(heldBackWords);
  const on = branches.filter(({ isOn }) => isOn).length;
  const rest = sorted.length - lines.length;
  return rest === 0 ? lines : [...lines, `And ${rest} more; on in ${on} of ${branches.length}.`];
}

const WATCH_EVERY_MS = 2000;
const CLEAR_SCREEN = '\u001b[H\u001b[2J';

export const status = command({
  description: 'Tell how fresh the data is, what is wrong and what is waited for',
  examples: ['status', 'status --watch', 'status --json'],
  options: { '--watch': 'show it anew every two seconds until Ctrl-C' },
  async run(call) {
    const { cli, options } = call;
    const { clock, signal, stdout } = cli;
    if (options.json && options.watch) {
      throw new TillsyncError('usage', '--json prints one document, so it cannot be watched.');
    }
    return withReaders(call, async (readers, config): Promise<Result> => {
      const { storedVerdict: judge, holdBackStates: heldBack } = await import('../app/read-only-services.ts');
      const say = speaker(config, clock);
      const look = () => statusOf(cli, readers, config, { judge, heldBack });
      for (;;) {
        const report = await whenFree(clock, look, undefined, signal);
        const above = configWarnings(config).map((warning) => `${say(`Warning: ${warning}`)}\n`);
        if (!options.watch) return { json: report, text: statusText(report, say), above: above.join('') };
        stdout.write((stdout.isTTY ? CLEAR_SCREEN : '') + statusText(report, say));
        await clock.sleep(WATCH_EVERY_MS, signal);
        if (signal.aborted) return {};
        if (!stdout.isTTY) stdout.write('\n');
      }
    }).catch((error: unknown) => {
      const read = readConfig(sourceOf(call));
      throw options.json || 'faults' in read ? error : spokenError(error, speaker(read.config, clock));
    });
  },
});

function statusOf(
  { clock }: Cli,
  readers: ReadOnlyServices,
  config: Config,
  { judge, heldBack }: { judge: typeof storedVerdict; heldBack: typeof holdBackStates },
): StatusReport {
  const nowMs = clock.nowMs();
  const own = ownStoreConfig(config);
  const { tokens, stateFault, ...state } = tokensAndWaits(readers, nowMs);
  return {
    at: isoUtc(nowMs),
    shop: shopName(config),
    currency: config.shop.currency || null,
    storage: config.storage.directory,
    ...(own && { ownStore: { branch: own.link.branch, storage: own.storage.directory } }),
    ...judge({ readers, config, clock, tokens, stateFault, running: state.running }),
    freshness: readers.mirror.freshness(),
    holdBack: heldBack(readers.mirror, config),
    alarms: readers.alarms(),
    ...state,
    // A branch has no tokens, so nothing is shown about them.
    ...(isBranch(config) && { auth: null }),
    counts: readers.counts(),
  };
}

/** Reads state.db, which belongs to the daemon's user; the rest of the report does not need it. */
function tokensAndWaits(readers: ReadOnlyServices, nowMs: number) {
  try {
    const [running, tokens, waits] = [readers.isRunning(), readers.tokens(), readers.waits()];
    return { running, tokens, stateFault: null, auth: authReport(tokens, nowMs), waits };
  } catch (error) {
    if (!(error instanceof TillsyncError) || error.code === 'storage-busy') throw error;
    const { message } = error;
    // A lack of permission is not a fault of the file.
    const stateFault = hasCode(error, 'storage-corrupt', 'storage-newer') ? message : null;
    return { running: null, tokens: null, stateFault, auth: null, authFault: message, waits: [] };
  }
}
