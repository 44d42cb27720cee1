import type Database from 'better-sqlite3';
import * as z from 'zod';
import { isoUtc } from '../core/time.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Hello } from './link.ts';

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
  branches: z.array(z.object({ branch: text, publicKey: text, joinedAt: text.nullable() })),
});
export type HubCopy = z.infer<typeof HUB_COPY>;

/** What a branch said last of itself; `mark`: the newest number of the feed that is in its mirror, 0 in an earlier life of it. */
export type BranchReport = Pick<
  Hello,
  'instance' | 'mark' | 'waiting' | 'oldestWaitingAt' | 'rejected' | 'quarantined' | 'verdict' | 'version'
>;

export interface InvitedBranch {
  branch: string;
  publicKey: string;
  /** ISO 8601 UTC; null: it has joined. */
  expiresAt: string | null;
  joinedAt: string | null;
  seenAt: string | null;
  report: BranchReport | null;
}

/** In place of a public key: the shop in which the hub stands comes by no server. */
const NO_KEY = 'own';

/** How often changed reports are written, all in one transaction; and the times at which branches were heard. */
const REPORTS_EVERY_MS = 3_000;
const TIMES_EVERY_MS = 30_000;

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
    const sql = `SELECT branch, public_key AS publicKey, expires_at AS expiresAt, joined_at AS joinedAt,
      seen_at AS seenAt, report FROM hub_branches ORDER BY branch`;
    const rows = storing(() =>
      sqlOf(this.#db).rows<Omit<InvitedBranch, 'report'> & { report: string | null }>(sql),
    );
    return rows.map((row) => {
      const heard = this.#heard.get(row.branch);
      // What was heard before it joined anew is of another machine.
      if (heard && row.joinedAt !== null && heard.seenMs >= Date.parse(row.joinedAt)) {
        return { ...row, report: heard.report, seenAt: isoUtc(heard.seenMs) };
      }
      return { ...row, report: row.report === null ? null : (JSON.parse(row.report) as BranchReport) };
    });
  }

  /** Those that the server knows: by a key, and of invitations those that hold. */
  usersOfServer(nowMs: number): InvitedBranch[] {
    return this.branches().filter(
      ({ publicKey, expiresAt }) =>
        publicKey !== NO_KEY && (expiresAt === null || Date.parse(expiresAt) > nowMs),
    );
  }

  /** The shop in which the hub stands has joined by that, and one in which it stood before has to join. '': none. */
  joinOwnStore(branch: string, nowMs: number): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        sql.run('DELETE FROM hub_branches WHERE public_key = ? AND branch <> ?', NO_KEY, branch);
        if (branch === '') return;
        sql.run(
          `INSERT INTO hub_branches (branch, public_key, joined_at) VALUES (@branch, @key, @at)
           ON CONFLICT (branch) DO UPDATE SET public_key = @key, expires_at = NULL, joined_at = @at,
             seen_at = NULL, report = NULL WHERE public_key <> @key`,
          { branch, key: NO_KEY, at: isoUtc(nowMs) },
        );
      }),
    );
  }

  /** The newest number of its feed that the branch told; 0: none. */
  markOf(branch: string): number {
    return this.#heard.get(branch)?.report.mark ?? 0;
  }

  /** Of branches those that have joined. */
  copy(): HubCopy {
    const joined = this.branches().filter(
      ({ publicKey, expiresAt }) => publicKey !== NO_KEY && expiresAt === null,
    );
    return {
      serverConfig: this.serverConfig() ?? null,
      branches: joined.map(({ branch, publicKey, joinedAt }) => ({ branch, publicKey, joinedAt })),
    };
  }

  /** Takes over what a machine knew that this one stands for from now on; it has keys, and no branches of its own. */
  takeOver({ serverConfig, branches }: HubCopy): void {
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        for (const { branch, publicKey, joinedAt } of branches) {
          const add = 'INSERT INTO hub_branches (branch, public_key, joined_at) VALUES (?, ?, ?)';
          sql.run(add, branch, publicKey, joinedAt);
        }
        if (serverConfig && !this.serverConfig()) this.noteServerConfig(serverConfig);
      }),
    );
  }

  /** The key of an invitation; whatever key the branch had before is worth nothing from now on. */
  invite(branch: string, publicKey: string, expiresAtMs: number): void {
    const sql = `INSERT INTO hub_branches (branch, public_key, expires_at) VALUES (?, ?, ?)
      ON CONFLICT (branch) DO UPDATE SET public_key = excluded.public_key, expires_at = excluded.expires_at`;
    storing(() => sqlOf(this.#db).run(sql, branch, publicKey, isoUtc(expiresAtMs)));
  }

  /** The branch's own key in place of that of its invitation; a sentence when the invitation is worth nothing. */
  join(branch: string, publicKey: string, nowMs: number): string | undefined {
    const row = this.branches().find((each) => each.branch === branch);
    // It asks again when it missed the answer.
    if (row?.publicKey === publicKey && row.expiresAt === null) return undefined;
    if (!row || row.expiresAt === null) return `The invitation of branch ${branch} was used already.`;
    if (Date.parse(row.expiresAt) < nowMs) return `The invitation of branch ${branch} has expired.`;
    const sql = `UPDATE hub_branches SET public_key = ?, expires_at = NULL, joined_at = ? WHERE branch = ?`;
    storing(() => sqlOf(this.#db).run(sql, publicKey, isoUtc(nowMs), branch));
    return undefined;
  }

  /** Whether the branch has a key of its own. */
  hasJoined(branch: string): boolean {
    const sql = 'SELECT 1 FROM hub_branches WHERE branch = ? AND expires_at IS NULL';
    return storing(() => sqlOf(this.#db).row(sql, branch)) !== undefined;
  }

  /** Whether it was there. */
  remove(branch: string): boolean {
    const sql = 'DELETE FROM hub_branches WHERE branch = ?';
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
    const seed = storing(() => sqlOf(this.#db).value<string>('SELECT seed FROM link_key'));
    if (seed !== undefined) this.#onSecret(seed);
    return seed;
  }

  /** Durable when it returns. */
  keep(seed: string): void {
    this.#onSecret(seed);
    const sql =
      'INSERT INTO link_key (one, seed) VALUES (1, ?) ON CONFLICT DO UPDATE SET seed = excluded.seed';
    storing(() => sqlOf(this.#db).run(sql, seed));
  }
}
