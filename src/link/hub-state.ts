import type Database from 'better-sqlite3';
import * as z from 'zod';
import { isoUtc } from '../core/time.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Hello } from './link.ts';
import type { ServerBranch } from './server-config.ts';
import { KEPT_WAYS, type KeptWays, type WaysStore } from './ways.ts';

const text = z.string().min(1);

/** The hub's own keys (nkey seeds): its user, the one that has the server read its configuration again, and the key of the server's files. */
export const HUB_KEYS = z.object({ hub: text, system: text, storage: text });
export type HubKeys = z.infer<typeof HUB_KEYS>;

const serverConfigPlace = z.object({
  file: text,
  storeDirectory: text,
  tls: z.object({ certFile: text, keyFile: text, caFile: text.nullable() }).nullable(),
});
/** How the server's configuration was written last, so that it can be written again when a branch comes or goes. */
export type ServerConfigPlace = z.infer<typeof serverConfigPlace>;

/** What every backup has of a hub. Nothing in it is secret: branches are known by the public halves of their keys. */
export const HUB_COPY = z.object({
  serverConfig: serverConfigPlace.nullable(),
  branches: z.array(
    z.object({
      branch: text,
      name: text.exactOptional(),
      subsidiaryId: text.nullable().default(null),
      publicKey: text,
      joinedAt: text.nullable(),
    }),
  ),
});
export type HubCopy = z.infer<typeof HUB_COPY>;

/** What a branch said last of itself; `mark`: the newest number of the feed that is in its mirror, 0 in an earlier life of it. */
export type BranchReport = Pick<
  Hello,
  'instance' | 'mark' | 'waiting' | 'oldestWaitingAt' | 'rejected' | 'quarantined' | 'verdict' | 'version'
> &
  Partial<Pick<Hello, 'ways'>>;

/** A branch of the configuration. */
export interface NamedBranch {
  /** Its identity: in its key, feed, stream, cursor and mirror. The name that it had first. */
  branch: string;
  /** What people call it. */
  name: string;
  /** What seems to be its earlier name, under which it has a key; it is no branch yet. */
  renamedFrom?: string;
  isClosed?: true;
}

export interface InvitedBranch {
  branch: string;
  name: string;
  subsidiaryId: string | null;
  closedAt: string | null;
  /** Its own; null: it has not joined. */
  publicKey: string | null;
  /** Of an invitation, which nobody has taken yet. */
  invitedKey: string | null;
  /** Until when the invitation is good, ISO 8601 UTC. */
  expiresAt: string | null;
  joinedAt: string | null;
  seenAt: string | null;
  /** It may have been heard so much later: another process wrote it down. 0: this one heard it. */
  seenLateMs: number;
  report: BranchReport | null;
}

/** In place of a public key: the shop in which the hub stands comes by no server. */
const NO_KEY = 'own';

/** How often changed reports are written, all in one transaction; and the times at which branches were heard. */
const REPORTS_EVERY_MS = 3_000;
const TIMES_EVERY_MS = 60_000;

/** What this process heard of a branch last. */
interface Heard {
  report: BranchReport;
  seenMs: number;
  /** As state.db has it. */
  written: string | null;
}

/**
 * Keys and branches of the hub, in state.db. What branches say of themselves stands in memory first: a sign of life is no
 * commit. Methods throw `storage-…`.
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

  /** undefined before they were made. */
  keys(): HubKeys | undefined {
    const text = storing(() => sqlOf(this.#db).value<string>('SELECT keys FROM hub'));
    if (text === undefined) return undefined;
    const keys = JSON.parse(text) as HubKeys;
    for (const secret of Object.values(keys)) this.#onSecret(secret);
    return keys;
  }

  /** Keeps these keys unless there are some; gives those that hold. */
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
      joined_at AS joinedAt, seen_at AS seenAt, report FROM hub_branches ORDER BY branch`;
    const rows = storing(() =>
      sqlOf(this.#db).rows<Omit<InvitedBranch, 'report' | 'seenLateMs'> & { report: string | null }>(sql),
    );
    return rows.map((row) => {
      const heard = this.#heard.get(row.branch);
      // What was heard before it joined anew is of another machine.
      if (heard && row.joinedAt !== null && heard.seenMs >= Date.parse(row.joinedAt)) {
        return { ...row, report: heard.report, seenAt: isoUtc(heard.seenMs), seenLateMs: 0 };
      }
      const report = row.report === null ? null : (JSON.parse(row.report) as BranchReport);
      return { ...row, report, seenLateMs: TIMES_EVERY_MS };
    });
  }

  /** Those that the server knows: by a key, and of invitations those that hold. */
  usersOfServer(nowMs: number): ServerBranch[] {
    return this.branches().flatMap(({ branch, publicKey, invitedKey, expiresAt }) => {
      const isOpen = expiresAt !== null && Date.parse(expiresAt) > nowMs;
      if (publicKey === NO_KEY || (publicKey === null && !isOpen)) return [];
      return [{ branch, publicKey, invitedKey: isOpen ? invitedKey : null }];
    });
  }

  /** What never changes of the branch with this name; the name itself where it is not known. */
  idOf(name: string): string {
    return this.branches().find((each) => each.name === name)?.branch ?? name;
  }

  /** The shop in which the hub stands has joined by that, and one in which it stood before has to join. '': none. */
  joinOwnStore(name: string, nowMs: number): void {
    const branch = name === '' ? '' : this.idOf(name);
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        const leave = `UPDATE hub_branches SET public_key = NULL, joined_at = NULL, seen_at = NULL, report = NULL
          WHERE public_key = ? AND branch <> ?`;
        sql.run(leave, NO_KEY, branch);
        if (branch === '') return;
        sql.run(
          `INSERT INTO hub_branches (branch, name, public_key, joined_at) VALUES (@branch, @name, @key, @at)
           ON CONFLICT (branch) DO UPDATE SET public_key = @key, invited_key = NULL, expires_at = NULL,
             closed_at = NULL, joined_at = @at, seen_at = NULL, report = NULL WHERE public_key IS NOT @key`,
          { branch, name, key: NO_KEY, at: isoUtc(nowMs) },
        );
      }),
    );
  }

  /**
   * The shop in which the hub stands, where the configuration has another name for it now: its id is the same, and nothing
   * else has one of the two names.
   */
  formerOwnStore(
    { name, subsidiaryId }: Pick<InvitedBranch, 'name' | 'subsidiaryId'>,
    configured: readonly Pick<InvitedBranch, 'name'>[],
  ): InvitedBranch | undefined {
    const rows = this.branches();
    const isTaken = rows.some((each) => each.name === name && (each.publicKey ?? each.invitedKey) !== null);
    const own = rows.find((each) => each.publicKey === NO_KEY);
    const isSame = own && subsidiaryId !== null && own.subsidiaryId === subsidiaryId;
    const isGone = !configured.some((each) => each.name === own?.name);
    return isSame && isGone && !isTaken ? own : undefined;
  }

  /** The newest number of its feed that the branch told; 0: none. */
  markOf(branch: string): number {
    return this.#heard.get(branch)?.report.mark ?? 0;
  }

  /** Of branches those that have joined. */
  copy(): HubCopy {
    return {
      serverConfig: this.serverConfig() ?? null,
      branches: this.branches().flatMap(({ branch, name, subsidiaryId, publicKey, joinedAt }) =>
        publicKey === null || publicKey === NO_KEY
          ? []
          : [{ branch, name, subsidiaryId, publicKey, joinedAt }],
      ),
    };
  }

  /** Takes over what a machine knew that this one stands for from now on; it has keys, and no branches of its own. */
  takeOver({ serverConfig, branches }: HubCopy, nowMs: number): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        for (const { branch, name = branch, subsidiaryId, publicKey, joinedAt } of branches) {
          const add = `INSERT INTO hub_branches (branch, name, subsidiary_id, public_key, joined_at)
            VALUES (?, ?, ?, ?, ?)`;
          sql.run(add, branch, name, subsidiaryId, publicKey, joinedAt ?? isoUtc(nowMs));
        }
        if (serverConfig && !this.serverConfig()) this.noteServerConfig(serverConfig);
      }),
    );
  }

  /**
   * The branches of the configuration, by what they are called. One that was never invited and has the `subsidiaryId` of
   * a branch with a key that nothing names any more seems to be that one, renamed.
   */
  named(configured: readonly Pick<InvitedBranch, 'name' | 'subsidiaryId'>[]): NamedBranch[] {
    const rows = this.branches();
    const names = new Set(configured.map(({ name }) => name));
    const taken = new Set(rows.map(({ branch }) => branch));
    return configured.map(({ name, subsidiaryId }) => {
      const row = rows.find((each) => each.name === name);
      if (row) return { branch: row.branch, name, ...(row.closedAt !== null && { isClosed: true as const }) };
      const before = rows.find(
        (each) =>
          each.publicKey !== null &&
          each.publicKey !== NO_KEY &&
          !names.has(each.name) &&
          subsidiaryId !== null &&
          each.subsidiaryId === subsidiaryId,
      );
      // The first name of another one is taken for ever: B2, B2-2, B2-3.
      let branch = name;
      for (let n = 2; taken.has(branch) || (branch !== name && names.has(branch)); n++)
        branch = `${name}-${n}`;
      return { branch, name, ...(before && { renamedFrom: before.name }) };
    });
  }

  /** The same, of those that are open. */
  open(configured: readonly Pick<InvitedBranch, 'name' | 'subsidiaryId'>[]): NamedBranch[] {
    return this.named(configured).filter(({ isClosed }) => isClosed !== true);
  }

  /** That the configuration has this id for the branch, if it was invited. */
  noteSubsidiary(branch: string, subsidiaryId: string | null): void {
    const sql = `UPDATE hub_branches SET subsidiary_id = @subsidiaryId
      WHERE branch = @branch AND subsidiary_id IS NOT @subsidiaryId`;
    storing(() => sqlOf(this.#db).run(sql, { branch, subsidiaryId }));
  }

  /** Another name of the same branch. One without a key that had the name gives it up. */
  rename(branch: string, name: string): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        const free = `DELETE FROM hub_branches WHERE coalesce(name, branch) = ? AND branch <> ?
          AND public_key IS NULL AND invited_key IS NULL`;
        sql.run(free, name, branch);
        sql.run('UPDATE hub_branches SET name = ? WHERE branch = ?', name, branch);
      }),
    );
  }

  /** Its keys end; gives whether it was open. */
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

  /** The key of an invitation, in place of an earlier one; the key that the branch has is good until somebody joins. */
  invite(branch: string, invitedKey: string, expiresAtMs: number, name = branch): void {
    const sql = `INSERT INTO hub_branches (branch, name, invited_key, expires_at) VALUES (?, ?, ?, ?)
      ON CONFLICT (branch) DO UPDATE SET invited_key = excluded.invited_key, expires_at = excluded.expires_at,
        closed_at = NULL`;
    storing(() => sqlOf(this.#db).run(sql, branch, name, invitedKey, isoUtc(expiresAtMs)));
  }

  /** The branch's own key from now on, in place of any other; a sentence when its invitation is worth nothing. */
  join(branch: string, publicKey: string, nowMs: number): string | undefined {
    const row = this.branches().find((each) => each.branch === branch);
    const { name = branch } = row ?? {};
    // It asks again when it missed the answer.
    if (row?.publicKey === publicKey) return undefined;
    if (!row?.expiresAt) return `The invitation of branch ${name} was used already.`;
    if (Date.parse(row.expiresAt) < nowMs) return `The invitation of branch ${name} has expired.`;
    const sql = `UPDATE hub_branches SET public_key = ?, joined_at = ?, invited_key = NULL, expires_at = NULL
      WHERE branch = ?`;
    storing(() => sqlOf(this.#db).run(sql, publicKey, isoUtc(nowMs), branch));
    return undefined;
  }

  /** Whether the branch has a key of its own. */
  hasJoined(branch: string): boolean {
    const sql = 'SELECT 1 FROM hub_branches WHERE branch = ? AND public_key IS NOT NULL';
    return storing(() => sqlOf(this.#db).row(sql, branch)) !== undefined;
  }

  /** Takes its keys; it stays who it is. Gives whether it had any. */
  remove(branch: string): boolean {
    const sql = `UPDATE hub_branches SET public_key = NULL, invited_key = NULL, expires_at = NULL, joined_at = NULL,
      seen_at = NULL, report = NULL WHERE branch = ? AND (public_key IS NOT NULL OR invited_key IS NOT NULL)`;
    return storing(() => sqlOf(this.#db).run(sql, branch)).changes > 0;
  }

  /** Durable at once only where another process speaks for the branch: after a restart that one is still heard. */
  saw(branch: string, report: BranchReport, nowMs: number): void {
    const before = this.#heard.get(branch);
    const instance = before?.report.instance ?? this.#storedInstance(branch);
    this.#heard.set(branch, { report, seenMs: nowMs, written: before?.written ?? null });
    if (instance !== report.instance) this.#write([branch]);
  }

  /** Writes what was heard since the last time, where it is due or `isLast`. */
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

/** The key of a branch, in state.db. Methods throw `storage-…`. */
export class LinkKeyRows {
  readonly #db: Database.Database;
  readonly #onSecret: (value: string) => void;

  constructor(db: Database.Database, onSecret: (value: string) => void) {
    this.#db = db;
    this.#onSecret = onSecret;
  }

  /** undefined before the branch joined. */
  read(): string | undefined {
    return this.#told('SELECT seed FROM link_key');
  }

  /** A key that the hub may have taken already; undefined where no answer is missing. */
  next(): string | undefined {
    return this.#told('SELECT next_seed FROM link_key');
  }

  #told(sql: string): string | undefined {
    const seed = storing(() => sqlOf(this.#db).value<string | null>(sql)) ?? undefined;
    if (seed !== undefined) this.#onSecret(seed);
    return seed;
  }

  /** Before the hub hears of it: the answer may be lost. The key in use stays. Durable when it returns. */
  propose(seed: string): void {
    this.#onSecret(seed);
    const sql = `INSERT INTO link_key (one, next_seed) VALUES (1, ?)
      ON CONFLICT DO UPDATE SET next_seed = excluded.next_seed`;
    storing(() => sqlOf(this.#db).run(sql, seed));
  }

  /** The hub has taken the proposed key. */
  accept(): void {
    const sql = 'UPDATE link_key SET seed = next_seed, next_seed = NULL WHERE next_seed IS NOT NULL';
    storing(() => sqlOf(this.#db).run(sql));
  }

  /** The hub has not taken it, and will not. */
  withdraw(): void {
    storing(() => sqlOf(this.#db).run('UPDATE link_key SET next_seed = NULL'));
  }
}

/** Where a branch finds its hub, in state.db. Methods throw `storage-…`. */
export class LinkWayRows implements WaysStore {
  readonly #db: Database.Database;

  constructor(db: Database.Database) {
    this.#db = db;
  }

  read(): KeptWays {
    const text = storing(() => sqlOf(this.#db).value<string>('SELECT kept FROM link_ways'));
    return text === undefined ? { announced: null, worked: null } : KEPT_WAYS.parse(JSON.parse(text));
  }

  keep(ways: KeptWays): void {
    const sql =
      'INSERT INTO link_ways (one, kept) VALUES (1, ?) ON CONFLICT DO UPDATE SET kept = excluded.kept';
    storing(() => sqlOf(this.#db).run(sql, JSON.stringify(ways)));
  }
}
