import type Database from 'better-sqlite3';
import * as z from 'zod';
import { isoUtc } from '../core/time.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Hello } from './link.ts';
import type { ServerBranch } from './server-config.ts';

const text = z.string().min(1);

/**
 * Secret keys of the hub: the nkey seeds of its own user and of the user that makes the server reload its
 * configuration, and the key that encrypts the server's files.
 */
export const HUB_KEYS = z.object({ hub: text, system: text, storage: text });
export type HubKeys = z.infer<typeof HUB_KEYS>;

const serverConfigPlace = z.object({
  file: text,
  storeDirectory: text,
  tls: z.object({ certFile: text, keyFile: text, caFile: text.nullable() }).nullable(),
});
/**
 * Inputs of the server's configuration, stored so that it can be written again when a branch is added or
 * removed.
 */
export type ServerConfigPlace = z.infer<typeof serverConfigPlace>;

/**
 * The part of the hub's state that every backup contains: branches with a key, and closed ones. It has no secret, only
 * the public keys of branches.
 */
export const HUB_COPY = z.object({
  serverConfig: serverConfigPlace.nullable(),
  branches: z.array(
    z.object({
      branch: text,
      name: text,
      subsidiaryId: text.nullable(),
      publicKey: text,
      joinedAt: text.nullable(),
    }),
  ),
  closed: z.array(z.object({ branch: text, name: text, subsidiaryId: text.nullable(), closedAt: text })),
});
export type HubCopy = z.infer<typeof HUB_COPY>;

/**
 * A branch's last report. `mark`: newest feed number in the branch's mirror; 0 if the number is of an earlier
 * epoch.
 */
type BranchReport = Pick<
  Hello,
  'instance' | 'mark' | 'waiting' | 'oldestWaitingAt' | 'rejected' | 'quarantined' | 'verdict' | 'version'
>;

/** A configured branch with its permanent id. */
export interface NamedBranch {
  /**
   * Permanent id of the branch in keys, feed, stream, cursor and mirror: the first name that the branch had.
   */
  branch: string;
  /** Name of the branch for people. */
  name: string;
  /**
   * Earlier name, if this is probably a renamed branch with a key. Until a person confirms, the branch gets
   * no feed.
   */
  renamedFrom?: string;
  isClosed?: true;
}

/**
 * Why the hub does not answer a branch's questions. `key`: the server refused a machine that used this
 * branch's name.
 */
const refused = z.object({ why: z.enum(['key', 'unreadable', 'numbers']), since: text });
export type Refused = z.infer<typeof refused>;

export interface InvitedBranch {
  branch: string;
  name: string;
  subsidiaryId: string | null;
  closedAt: string | null;
  /** The branch's own public key; null if it has not joined. */
  publicKey: string | null;
  /** Public key of an unused invitation. */
  invitedKey: string | null;
  /** When the invitation expires, ISO 8601 UTC. */
  expiresAt: string | null;
  joinedAt: string | null;
  /** When the branch last reported, ISO 8601 UTC. */
  seenAt: string | null;
  /** Time by which `seenAt` may be too old. It is 0 if this process received the report itself. */
  seenLateMs: number;
  report: BranchReport | null;
  /** Reason of the last refusal; null once the branch was accepted again. */
  refused: Refused | null;
}

/** Interval at which changed reports of branches are written to state.db, all in one transaction. */
const REPORTS_EVERY_MS = 3_000;
/** Interval at which all reports are written, changed or not, with the times at which they arrived. */
const TIMES_EVERY_MS = 60_000;

/** The last report of a branch in this process. */
interface Heard {
  report: BranchReport;
  seenMs: number;
  /** The report as stored in state.db. */
  written: string | null;
}

/** A row of a branch. Report and refusal are JSON texts. */
type StoredBranch = Omit<InvitedBranch, 'report' | 'refused' | 'seenLateMs'> &
  Record<'report' | 'refused', string | null>;

type ConfiguredName = Pick<InvitedBranch, 'name' | 'subsidiaryId'>;

/**
 * Returns whether the configuration gives a branch's name to another shop, whose orders the branch's machine must not
 * get. That is so if the `subsidiaryId` changed and another branch has the old or the new id; otherwise a wrong id was
 * corrected.
 */
function isOfAnother(
  row: InvitedBranch,
  { name, subsidiaryId }: ConfiguredName,
  configured: readonly ConfiguredName[],
  rows: readonly InvitedBranch[],
): boolean {
  if (row.subsidiaryId === null || subsidiaryId === null || row.subsidiaryId === subsidiaryId) return false;
  const isSettled = (each: ConfiguredName) =>
    rows.some((known) => known.name === each.name && known.subsidiaryId === each.subsidiaryId);
  return (
    configured.some(
      (each) => each.name !== name && each.subsidiaryId === row.subsidiaryId && !isSettled(each),
    ) ||
    rows.some((known) => known !== row && known.publicKey !== null && known.subsidiaryId === subsidiaryId)
  );
}

/**
 * Stores the hub's keys and branches in state.db. Reports of branches are first kept in memory, so that a
 * heartbeat needs no commit. Methods throw `storage-…`.
 */
export class HubRows {
  readonly #db: Database.Database;
  readonly #onSecret: (value: string) => void;
  readonly #heard = new Map<string, Heard>();
  #reportsMs = Number.NEGATIVE_INFINITY;
  #timesMs = Number.NEGATIVE_INFINITY;

  constructor(db: Database.Database, onSecret: (value: string) => void) {
    this.#db = db;
    this.#onSecret = onSecret;
  }

  /** Returns the hub's keys, or undefined if they were not made yet. */
  keys(): HubKeys | undefined {
    const text = storing(() => sqlOf(this.#db).value<string>('SELECT keys FROM hub'));
    if (text === undefined) return undefined;
    const keys = JSON.parse(text) as HubKeys;
    for (const secret of Object.values(keys)) this.#onSecret(secret);
    return keys;
  }

  /** Stores these keys unless there are keys already. Returns the stored keys. */
  keepKeys(keys: HubKeys): HubKeys {
    const sql = 'INSERT INTO hub (one, keys) VALUES (1, ?) ON CONFLICT DO NOTHING';
    storing(() => sqlOf(this.#db).run(sql, JSON.stringify(keys)));
    return this.keys() ?? keys;
  }

  serverConfig(): ServerConfigPlace | undefined {
    const text = storing(() => sqlOf(this.#db).value<string | null>('SELECT server_config FROM hub'));
    return text == null ? undefined : (JSON.parse(text) as ServerConfigPlace);
  }

  noteServerConfig(place: ServerConfigPlace): void {
    storing(() => sqlOf(this.#db).run('UPDATE hub SET server_config = ?', JSON.stringify(place)));
  }

  branches(): InvitedBranch[] {
    const sql = `SELECT branch, coalesce(name, branch) AS name, subsidiary_id AS subsidiaryId, closed_at AS closedAt,
      public_key AS publicKey, invited_key AS invitedKey, expires_at AS expiresAt,
      joined_at AS joinedAt, seen_at AS seenAt, report, refused FROM hub_branches ORDER BY branch`;
    const stored = storing(() => sqlOf(this.#db).rows<StoredBranch>(sql));
    return stored.map((each) => {
      const row = {
        ...each,
        refused: each.refused === null ? null : refused.parse(JSON.parse(each.refused)),
      };
      const heard = this.#heard.get(row.branch);
      // A report older than the branch's last join came from another machine.
      if (heard && row.joinedAt !== null && heard.seenMs >= Date.parse(row.joinedAt)) {
        return { ...row, report: heard.report, seenAt: isoUtc(heard.seenMs), seenLateMs: 0 };
      }
      const report = row.report === null ? null : (JSON.parse(row.report) as BranchReport);
      return { ...row, report, seenLateMs: TIMES_EVERY_MS };
    });
  }

  /**
   * Returns the branches that the server must accept: those with a key or a valid invitation. Called each second, so it
   * reads no reports.
   */
  usersOfServer(nowMs: number): ServerBranch[] {
    const sql = `SELECT branch, public_key AS publicKey, iif(expires_at > @now, invited_key, NULL) AS invitedKey
      FROM hub_branches
      WHERE public_key IS NOT NULL OR expires_at > @now ORDER BY branch`;
    return storing(() => sqlOf(this.#db).rows<ServerBranch>(sql, { now: isoUtc(nowMs) }));
  }

  /** Returns the name of the branch with this permanent id, or the id itself if it is unknown. */
  nameOf(branch: string): string {
    return this.branches().find((each) => each.branch === branch)?.name ?? branch;
  }

  /** Returns the newest feed number that the branch reported to this process; 0 if none. */
  markOf(branch: string): number {
    return this.#heard.get(branch)?.report.mark ?? 0;
  }

  /**
   * Returns the hub's part of a backup: the inputs of the server's configuration, the branches with a key and those that
   * are closed.
   */
  copy(): HubCopy {
    const rows = this.branches();
    return {
      serverConfig: this.serverConfig() ?? null,
      branches: rows.flatMap(({ branch, name, subsidiaryId, publicKey, joinedAt }) =>
        publicKey === null ? [] : [{ branch, name, subsidiaryId, publicKey, joinedAt }],
      ),
      closed: rows.flatMap(({ branch, name, subsidiaryId, closedAt }) =>
        closedAt === null ? [] : [{ branch, name, subsidiaryId, closedAt }],
      ),
    };
  }

  /**
   * Adds the branches of another machine's hub, and its server configuration if this hub has none. This hub must have
   * keys and no branches yet.
   */
  takeOver({ serverConfig, branches, closed }: HubCopy, nowMs: number): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        for (const { branch, name = branch, subsidiaryId, publicKey, joinedAt } of branches) {
          const add = `INSERT INTO hub_branches (branch, name, subsidiary_id, public_key, joined_at)
            VALUES (?, ?, ?, ?, ?)`;
          sql.run(add, branch, name, subsidiaryId, publicKey, joinedAt ?? isoUtc(nowMs));
        }
        for (const { branch, name, subsidiaryId, closedAt } of closed) {
          const add = 'INSERT INTO hub_branches (branch, name, subsidiary_id, closed_at) VALUES (?, ?, ?, ?)';
          sql.run(add, branch, name, subsidiaryId, closedAt);
        }
        if (serverConfig && !this.serverConfig()) this.noteServerConfig(serverConfig);
      }),
    );
  }

  /**
   * Returns the configured branches with their permanent ids. An unknown name with the `subsidiaryId` of a joined
   * branch that is no longer configured is probably the new name of that branch.
   */
  named(configured: readonly ConfiguredName[]): NamedBranch[] {
    const rows = this.branches();
    const names = new Set(configured.map(({ name }) => name));
    const taken = new Set(rows.map(({ branch }) => branch));
    const isSame = (row: InvitedBranch, each: ConfiguredName) =>
      row.name === each.name && !isOfAnother(row, each, configured, rows);
    return configured.map((each) => {
      const { name, subsidiaryId } = each;
      const row = rows.find((known) => isSame(known, each));
      if (row) return { branch: row.branch, name, ...(row.closedAt !== null && { isClosed: true as const }) };
      const before = rows.find(
        (known) =>
          known.publicKey !== null &&
          subsidiaryId !== null &&
          known.subsidiaryId === subsidiaryId &&
          !configured.some((other) => isSame(known, other)),
      );
      // The first name of another branch is never reused as an id: B2 → B2-2 → B2-3.
      let branch = name;
      for (let n = 2; taken.has(branch) || (branch !== name && names.has(branch)); n++)
        branch = `${name}-${n}`;
      return { branch, name, ...(before && { renamedFrom: before.name }) };
    });
  }

  /** Returns the configured branches that a person has not closed. */
  open(configured: readonly ConfiguredName[]): NamedBranch[] {
    return this.named(configured).filter(({ isClosed }) => isClosed !== true);
  }

  /** Records the configured subsidiary id of an invited branch. */
  noteSubsidiary(branch: string, subsidiaryId: string | null): void {
    const sql = `UPDATE hub_branches SET subsidiary_id = @subsidiaryId
      WHERE branch = @branch AND subsidiary_id IS NOT @subsidiaryId`;
    storing(() => sqlOf(this.#db).run(sql, { branch, subsidiaryId }));
  }

  /** Renames a branch. Deletes another branch's row of that name if it has neither a key nor an invitation. */
  rename(branch: string, name: string, subsidiaryId: string | null = null): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        const free = `DELETE FROM hub_branches WHERE coalesce(name, branch) = ? AND branch <> ?
          AND public_key IS NULL AND invited_key IS NULL`;
        sql.run(free, name, branch);
        const update = `UPDATE hub_branches SET name = ?, subsidiary_id = coalesce(?, subsidiary_id)
          WHERE branch = ?`;
        sql.run(update, name, subsidiaryId, branch);
      }),
    );
  }

  /** Closes a branch by making its keys invalid. Returns whether the branch was open. */
  close({ branch, name }: NamedBranch, nowMs: number): boolean {
    const sql = sqlOf(this.#db);
    return storing(() =>
      sql.transaction(() => {
        this.remove(branch);
        const close = `INSERT INTO hub_branches (branch, name, closed_at) VALUES (?, ?, ?)
          ON CONFLICT (branch) DO UPDATE SET closed_at = excluded.closed_at WHERE closed_at IS NULL`;
        return sql.run(close, branch, name, isoUtc(nowMs)).changes > 0;
      }),
    );
  }

  /**
   * Stores the key of an invitation, replacing an earlier invitation. The branch's present key stays valid
   * until a machine joins.
   */
  invite(branch: string, invitedKey: string, expiresAtMs: number, name = branch): void {
    const sql = `INSERT INTO hub_branches (branch, name, invited_key, expires_at) VALUES (?, ?, ?, ?)
      ON CONFLICT (branch) DO UPDATE SET invited_key = excluded.invited_key, expires_at = excluded.expires_at,
        closed_at = NULL`;
    storing(() => sqlOf(this.#db).run(sql, branch, name, invitedKey, isoUtc(expiresAtMs)));
  }

  /**
   * Makes this key the branch's only key. Returns a sentence with the reason if the branch has no valid
   * invitation.
   */
  join(branch: string, publicKey: string, nowMs: number): string | undefined {
    const row = this.branches().find((each) => each.branch === branch);
    const { name = branch } = row ?? {};
    // The branch did not receive the first answer and asks again.
    if (row?.publicKey === publicKey) return undefined;
    if (!row?.expiresAt) return `The invitation of branch ${name} was used already.`;
    if (Date.parse(row.expiresAt) < nowMs) return `The invitation of branch ${name} has expired.`;
    const sql = `UPDATE hub_branches SET public_key = ?, joined_at = ?, invited_key = NULL, expires_at = NULL,
      refused = NULL
      WHERE branch = ?`;
    storing(() => sqlOf(this.#db).run(sql, publicKey, isoUtc(nowMs), branch));
    return undefined;
  }

  /** Returns whether the branch has a key of its own. */
  hasJoined(branch: string): boolean {
    const sql = 'SELECT 1 FROM hub_branches WHERE branch = ? AND public_key IS NOT NULL';
    return storing(() => sqlOf(this.#db).row(sql, branch)) !== undefined;
  }

  /** Deletes the branch of this name if it has no key, so that another branch may get the name. */
  forget(name: string): void {
    const sql = 'DELETE FROM hub_branches WHERE coalesce(name, branch) = ? AND public_key IS NULL';
    storing(() => sqlOf(this.#db).run(sql, name));
  }

  /** Deletes the branch's keys and keeps its id. Returns whether the branch had a key or an invitation. */
  remove(branch: string): boolean {
    const sql = `UPDATE hub_branches SET public_key = NULL, invited_key = NULL, expires_at = NULL, joined_at = NULL,
      seen_at = NULL, report = NULL, refused = NULL
      WHERE branch = ? AND (public_key IS NOT NULL OR invited_key IS NOT NULL)`;
    return storing(() => sqlOf(this.#db).run(sql, branch)).changes > 0;
  }

  /**
   * Records a branch's report. It is written at once only if it is of a new process of the branch, so that the hub
   * still knows that process after a restart of its own.
   */
  saw(branch: string, report: BranchReport, nowMs: number): void {
    const before = this.#heard.get(branch);
    const instance = before?.report.instance ?? this.#storedInstance(branch);
    this.#heard.set(branch, { report, seenMs: nowMs, written: before?.written ?? null });
    if (instance !== report.instance) this.#write([branch]);
    if (this.#refusedFor(branch) !== null) this.#writeRefused(branch, null);
  }

  /**
   * Records why a branch was refused. The same reason is written only once until the branch is accepted
   * again, however often the branch asks.
   */
  noteRefused(branch: string, why: Refused['why'], nowMs: number): void {
    if (this.#refusedFor(branch) !== why) this.#writeRefused(branch, { why, since: isoUtc(nowMs) });
  }

  #refusedFor(branch: string): string | null {
    const sql = "SELECT json_extract(refused, '$.why') FROM hub_branches WHERE branch = ?";
    return storing(() => sqlOf(this.#db).value<string | null>(sql, branch)) ?? null;
  }

  #writeRefused(branch: string, now: Refused | null): void {
    const sql = 'UPDATE hub_branches SET refused = ? WHERE branch = ?';
    storing(() => sqlOf(this.#db).run(sql, now && JSON.stringify(now), branch));
  }

  /** Writes changed reports to state.db if they are due, and all reports if the times are due or `isLast` is true. */
  writeHeard(nowMs: number, isLast = false): void {
    const areTimesDue = isLast || Math.abs(nowMs - this.#timesMs) >= TIMES_EVERY_MS;
    if (!areTimesDue && Math.abs(nowMs - this.#reportsMs) < REPORTS_EVERY_MS) return;
    this.#reportsMs = nowMs;
    if (areTimesDue) this.#timesMs = nowMs;
    const due = [...this.#heard].filter(
      ([, { report, written }]) => areTimesDue || JSON.stringify(report) !== written,
    );
    this.#write(due.map(([branch]) => branch));
  }

  #storedInstance(branch: string): string | null | undefined {
    const sql = "SELECT json_extract(report, '$.instance') FROM hub_branches WHERE branch = ?";
    return storing(() => sqlOf(this.#db).value<string | null>(sql, branch));
  }

  #write(branches: readonly string[]): void {
    if (branches.length === 0) return;
    const sql = sqlOf(this.#db);
    const write = `UPDATE hub_branches SET seen_at = @seenAt, report = @report
      WHERE branch = @branch AND joined_at <= @seenAt`;
    storing(() =>
      sql.transaction(() => {
        for (const branch of branches) {
          const heard = this.#heard.get(branch);
          if (!heard) continue;
          const report = JSON.stringify(heard.report);
          sql.run(write, { branch, report, seenAt: isoUtc(heard.seenMs) });
          heard.written = report;
        }
      }),
    );
  }
}

/** Stores the branch's own key in state.db. Methods throw `storage-…`. */
export class LinkKeyRows {
  readonly #db: Database.Database;
  readonly #onSecret: (value: string) => void;

  constructor(db: Database.Database, onSecret: (value: string) => void) {
    this.#db = db;
    this.#onSecret = onSecret;
  }

  /** Returns the seed of the branch's key, or undefined if the branch has not joined. */
  read(): string | undefined {
    return this.#told('SELECT seed FROM link_key');
  }

  /**
   * Returns the proposed key that the hub has not confirmed. The hub may have accepted it, but its answer was
   * lost.
   */
  next(): string | undefined {
    return this.#told('SELECT next_seed FROM link_key');
  }

  #told(sql: string): string | undefined {
    const seed = storing(() => sqlOf(this.#db).value<string | null>(sql)) ?? undefined;
    if (seed !== undefined) this.#onSecret(seed);
    return seed;
  }

  /**
   * Stores a key before it is sent to the hub, because the hub's answer may be lost. The key in use stays
   * valid.
   */
  propose(seed: string): void {
    this.#onSecret(seed);
    const sql = `INSERT INTO link_key (one, next_seed) VALUES (1, ?)
      ON CONFLICT DO UPDATE SET next_seed = excluded.next_seed`;
    storing(() => sqlOf(this.#db).run(sql, seed));
  }

  /** Makes the proposed key the key in use, after the hub accepted it. */
  accept(): void {
    const sql = 'UPDATE link_key SET seed = next_seed, next_seed = NULL WHERE next_seed IS NOT NULL';
    storing(() => sqlOf(this.#db).run(sql));
  }

  /** Deletes the proposed key, after the hub refused it for good. */
  withdraw(): void {
    storing(() => sqlOf(this.#db).run('UPDATE link_key SET next_seed = NULL'));
  }
}
