import type Database from 'better-sqlite3';
import * as z from 'zod';
import { typedWords } from '../core/errors.ts';
import { isoTime, text, whole } from '../core/schema.ts';
import { hasRole } from '../db/marks.ts';
import { sqlOf } from '../db/sqlite.ts';
import { FINDINGS, type FindingCode } from '../health/findings.ts';
import type { InvitedBranch, NamedBranch, Refused } from './hub-state.ts';

/** Levels of a branch as the hub sees it, worst first. */

export const BRANCH_LEVELS = ['red', 'amber', 'never-joined', 'green'] as const;

export const branchStatus = z.object({
  branch: z.string().describe('What the hub calls it'),
  status: z
    .enum(['not-invited', 'invited', 'joined'])
    .describe('`invited`: it has no key of its own yet, and an invitation that is good until `expiresAt`'),
  level: z
    .enum(BRANCH_LEVELS)
    .describe('Its own verdict, made worse by what only the hub sees; `never-joined`: it has none yet'),
  reason: z
    .enum(['absent', 'behind', 'other', ...(Object.keys(FINDINGS) as FindingCode[])])
    .nullable()
    .describe(
      'Why it is not green: `absent`: nothing was heard of it for a while; `behind`: it does not take what is sent; ' +
        'else the code of a finding. `other`: one that this version does not know',
    ),
  message: z.string().describe('The same in words; empty where all is well'),
  command: text.describe('Where to look; null where all is well'),
  commandAt: z.enum(['hub', 'branch']).describe('On which machine to type it'),
  joinedAt: isoTime.nullable(),
  expiresAt: isoTime
    .nullable()
    .describe('Of an invitation that nobody has taken yet; `joined`: for another machine'),
  seenAt: isoTime.nullable().describe('When it last told of itself; what follows is from then'),
  behind: whole
    .nullable()
    .describe('Entries of its feed that its mirror did not have yet; null: never heard of'),
  behindSince: isoTime.nullable().describe('When the first of these was written'),
  waiting: whole.nullable().describe('Changes and acknowledgements that wait there for the hub'),
  oldestWaitingAt: isoTime.nullable().describe('When the first of these changes was made'),
  rejected: whole.describe('Its changes that were refused'),
  held: whole.describe('Its changes that a guard rail of the hub holds for a person'),
  quarantined: whole.describe('Entries that it could not apply'),
  version: text.describe('Of its tillsync'),
});
export type BranchStatus = z.output<typeof branchStatus>;

/** Silence after which a branch counts as absent. A branch reports every 30 seconds. */
export const ABSENT_AFTER_MS = 90_000;
/**
 * Age below which an unapplied entry is no delay, because the branch may have applied the entry after its last report.
 */
const BEHIND_AFTER_MS = 120_000;
/** An entry younger than this at the branch's last report was still being delivered, so it is no delay. */
const ON_ITS_WAY_MS = 5_000;
/**
 * Age of the oldest entry that a branch lacks, or of the branch's oldest change that the hub lacks, from which somebody
 * must act.
 */
export const LOST_AFTER_MS = 600_000;

export type Cause = Pick<BranchStatus, 'level' | 'reason' | 'message' | 'command'> & {
  commandAt?: 'branch';
};

const LINE = 'SELECT line AS uplinkId, stopped_seq AS stoppedSeq FROM _feed_branches WHERE branch = ?';

/** The hub's facts that explain a branch's faults. `row` is a function, because the row is rarely needed. */
interface Known {
  row: () => { uplinkId: string | null; stoppedSeq: number | null } | undefined;
  said: InvitedBranch['report'];
  refused: InvitedBranch['refused'];
  seenLateMs: number;
}

/** Returns a sentence that says why a branch with a key does not report. */
function whyAway(
  { joinedAt, seenAt }: Omit<BranchStatus, keyof Cause>,
  { row, said, refused }: Known,
): string {
  if (refused !== null) return whyRefused(refused);
  if (seenAt === null || (joinedAt !== null && seenAt < joinedAt)) {
    return `It joined at ${joinedAt} and its tillsync has said nothing yet.`;
  }
  if (row()?.stoppedSeq != null) return `Its tillsync said at ${seenAt} that it stops.`;
  const lost = `It was heard last at ${seenAt} and did not say that it stops: its line, its power or its tillsync failed.`;
  const hadWrongClock = said?.verdict.finding?.startsWith('clock.') === true;
  return [lost, ...(hadWrongClock ? ['Its clock was wrong then.'] : [])].join(' ');
}

function whyRefused({ why, since }: Refused): string {
  if (why === 'key')
    return `A machine that calls itself so is refused since ${since}: the hub does not know its key.`;
  return why === 'numbers'
    ? `What it asks is refused since ${since}: it names a number that it cannot have given.`
    : `The hub cannot read what it asks since ${since}: one of the two tillsyncs is too old.`;
}

/** Returns a sentence that says why a branch has no key. */
function whyKeyless(
  { status, expiresAt }: Omit<BranchStatus, keyof Cause>,
  { row, refused }: Known,
  nowMs: number,
): string {
  const isLate = expiresAt !== null && Date.parse(expiresAt) < nowMs;
  const isFormer = row()?.uplinkId != null;
  const why =
    status === 'invited'
      ? isLate
        ? 'Its invitation has expired, and no machine joined with it.'
        : 'It was invited and has not joined yet.'
      : isFormer
        ? 'Its key has ended, and it was not invited again.'
        : 'It was not invited yet.';
  return refused === null ? why : `${why} ${whyRefused(refused)}`;
}

/**
 * Returns a branch's faults, worst first. Among equally bad faults, those that the hub found itself come
 * first.
 */
function causes(
  named: NamedBranch,
  found: Omit<BranchStatus, keyof Cause>,
  known: Known,
  nowMs: number,
): Cause[] {
  const { branch, joinedAt, seenAt, behindSince, held } = found;
  const { said, seenLateMs, refused } = known;
  const { renamedFrom } = named;
  const { tillsync } = typedWords();
  const ageMs = (iso: string | null) => (iso === null ? 0 : nowMs - Date.parse(iso));
  const invite = `${tillsync} branch invite ${branch}`;
  if (renamedFrom !== undefined) {
    // A permanent id that differs from the name means that another branch had this name first.
    const message =
      named.branch === named.name
        ? `It has the subsidiary_id of ${renamedFrom}, which is not in the configuration any more: where that is its earlier name, say so, and it goes on as it was. As a branch of its own it is invited.`
        : `It has the subsidiary_id of ${renamedFrom}, so no order goes to it until you say which shop it is. Where only the id was wrong: ${tillsync} branch rename ${branch} ${branch}. Where that is its earlier name:`;
    return [
      {
        level: 'amber',
        reason: 'other',
        message,
        command: `${tillsync} branch rename ${renamedFrom} ${branch}`,
      },
    ];
  }
  if (joinedAt === null) {
    const message = whyKeyless(found, known, nowMs);
    return [{ level: 'never-joined', reason: null, message, command: invite }];
  }
  const all: Cause[] = [];
  const isLost = ageMs(behindSince) >= LOST_AFTER_MS;
  const level = isLost ? 'red' : 'amber';
  const waits = isLost ? ' What the hub has for it waits.' : '';
  if (seenAt === null || ageMs(seenAt) >= ABSENT_AFTER_MS + seenLateMs) {
    const message = `Nothing is heard of it. ${whyAway(found, known)}${waits}`;
    const isKey = refused?.why === 'key';
    const where = isKey
      ? { command: invite }
      : { command: 'sudo tillsync doctor', commandAt: 'branch' as const };
    all.push({ level, reason: 'absent', message, ...where });
  } else if (ageMs(behindSince) >= BEHIND_AFTER_MS) {
    const message = 'It is connected and does not take what the hub has for it.';
    all.push({ level, reason: 'behind', message, command: `${tillsync} branch doctor ${branch}` });
  }
  if (held > 0) {
    const command = `${tillsync} outbox list --state held`;
    all.push({ level: 'amber', reason: 'outbox.held', message: sentence('outbox.held'), command });
  }
  const verdict = said?.verdict;
  if (verdict !== undefined && verdict.level !== 'green') {
    const reason = isFinding(verdict.finding) ? verdict.finding : 'other';
    const message = reason === 'other' ? 'Its own page tells of something that is wrong.' : sentence(reason);
    const command = `${tillsync} branch doctor ${branch}`;
    all.push({ level: verdict.level, reason, message, command });
  }
  return all.sort((a, b) => rank(a.level) - rank(b.level));
}

function isFinding(code: string | null): code is FindingCode {
  return code !== null && Object.hasOwn(FINDINGS, code);
}

function sentence(code: FindingCode): string {
  return FINDINGS[code].message.replace(': {count}', '');
}

const rank = (level: BranchStatus['level']) => BRANCH_LEVELS.indexOf(level);

/** The hub's facts about a branch, with all its faults, worst first. */
export interface ExaminedBranch {
  found: Omit<BranchStatus, keyof Cause>;
  causes: Cause[];
}

/** Examines the configured branches and returns them in the order of the configuration. */
export function examineBranches(
  db: Database.Database,
  names: readonly NamedBranch[],
  invited: readonly InvitedBranch[],
  nowMs: number,
): ExaminedBranch[] {
  const known = new Map(invited.map((each) => [each.branch, each]));
  const held = heldChanges(db);
  return names.map((named) => {
    const { branch, name } = named;
    const row = known.get(branch);
    const {
      expiresAt = null,
      joinedAt = null,
      seenAt = null,
      seenLateMs = 0,
      report = null,
      refused = null,
    } = row ?? {};
    const found = {
      branch: name,
      joinedAt,
      expiresAt,
      seenAt,
      status: joinedAt !== null ? 'joined' : expiresAt !== null ? 'invited' : 'not-invited',
      ...behindOf(db, branch, row, nowMs),
      waiting: report?.waiting ?? null,
      oldestWaitingAt: report?.oldestWaitingAt ?? null,
      rejected: report?.rejected ?? 0,
      held: held.get(branch) ?? 0,
      quarantined: report?.quarantined ?? 0,
      version: report?.version ?? null,
    } as const;
    const about = {
      row: () =>
        hasRole(db, 'hub') ? sqlOf(db).row<NonNullable<ReturnType<Known['row']>>>(LINE, branch) : undefined,
      said: report,
      refused,
      seenLateMs,
    };
    return { found, causes: causes(named, found, about, nowMs) };
  });
}

const WELL: Cause = { level: 'green', reason: null, message: '', command: null };

/** Returns the configured branches, worst level first. */
export function branchBoard(
  db: Database.Database,
  names: readonly NamedBranch[],
  invited: readonly InvitedBranch[],
  nowMs: number,
): BranchStatus[] {
  const board = examineBranches(db, names, invited, nowMs).map(({ found, causes: [worst = WELL] }) => ({
    commandAt: 'hub' as const,
    ...found,
    ...worst,
  }));
  return board.sort(
    (a, b) =>
      rank(a.level) - rank(b.level) ||
      (a.behindSince ?? NEVER).localeCompare(b.behindSince ?? NEVER) ||
      a.branch.localeCompare(b.branch, 'en', { numeric: true }),
  );
}

/** Sorts after every ISO time, because letters sort after digits. */
const NEVER = 'never';

/** Returns the number of the newest entry in a branch's feed. */
export function newestNumber(db: Database.Database, branch: string): number {
  return sqlOf(db).value<number>('SELECT last_n FROM _feed_branches WHERE branch = ?', branch) ?? 0;
}

/**
 * Returns how many entries a branch's mirror lacks, and since when. Returns 0 if the branch is connected and the oldest
 * of them was written since its last report, because it has probably applied them by now.
 */
function behindOf(
  db: Database.Database,
  branch: string,
  known: InvitedBranch | undefined,
  nowMs: number,
): Pick<BranchStatus, 'behind' | 'behindSince'> {
  const mark = known?.report?.mark;
  if (mark === undefined) return { behind: null, behindSince: null };
  const first = 'SELECT written_at FROM _feed WHERE branch = ? AND n > ? ORDER BY n LIMIT 1';
  const behind = Math.max(0, newestNumber(db, branch) - mark);
  const since = behind === 0 ? null : (sqlOf(db).value<string>(first, branch, mark) ?? null);
  const seenMs = Date.parse(known?.seenAt ?? '');
  const isConnected = nowMs - seenMs < ABSENT_AFTER_MS + (known?.seenLateMs ?? 0);
  if (isConnected && since !== null && Date.parse(since) > seenMs - ON_ITS_WAY_MS) {
    return { behind: 0, behindSince: null };
  }
  return { behind, behindSince: since };
}

function heldChanges(db: Database.Database): ReadonlyMap<string, number> {
  if (!hasRole(db, 'hub')) return new Map();
  const sql = `SELECT u.branch, count(*) AS held FROM _outbox o JOIN _handed_up u USING (change_id)
    WHERE o.state = 'pending' AND o.held_guard IS NOT NULL GROUP BY u.branch`;
  return new Map(
    sqlOf(db)
      .rows<{ branch: string; held: number }>(sql)
      .map(({ branch, held }) => [branch, held]),
  );
}
