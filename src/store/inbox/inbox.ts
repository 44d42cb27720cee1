import { hasCode, type TillsyncError } from '../../domain/errors.ts';
import { storing } from '../sqlite.ts';
import {
  hasRollbackJournal,
  inodeAt,
  keptFiles,
  moveAway,
  type OpenInbox,
  openInboxFile,
  requireReadable,
  setAside,
  strangeSideFiles,
  type WallClock,
} from './inbox-file.ts';
import { type InboxBatch, type InboxRow, InboxRows, type InboxWaiting } from './inbox-rows.ts';
import { requireSchema } from './inbox-schema.ts';

export interface InboxOptions {
  /** `inbox/inbox.db` in the storage directory. */
  path: string;
  /** Unix group, by name or number, that may insert; left out: the storage directory decides. */
  group?: string | undefined;
  clock: WallClock;
  /** Told when the file was found damaged, deleted or replaced; a sentence for a person. */
  onTrouble: (trouble: InboxTrouble) => void;
}

/**
 * - `damaged`: it could not be used; it is kept at `keptAt`, and a new one is in its place
 * - `deleted`: somebody removed it; a new one is in its place
 * - `replaced`: somebody put another file there, which is used now
 * - `obstructed`: something lay where SQLite keeps its journal; it is at `keptAt` now, and the inbox is used as it is
 */
export interface InboxTrouble {
  kind: 'damaged' | 'deleted' | 'replaced' | 'obstructed';
  keptAt: string | null;
  message: string;
}

/** How often a journal mode that a POS has set is put back; each try may have to wait for the POS. */
const JOURNAL_EVERY_MS = 30_000;

/**
 * The database into which a POS inserts by SQL. It belongs to another Unix user as much as to tillsync, so it may
 * be locked, damaged, deleted or replaced at any time. Whoever opens it may hang, die or run out of memory: only the
 * process that does nothing else (inbox-child.ts) does. Methods throw `storage-busy` while a POS holds its lock,
 * after at most 50 ms.
 */
export class Inbox {
  readonly #options: InboxOptions;
  #open: (OpenInbox & { rows: InboxRows }) | undefined;
  /** Of the file that was open last; undefined when it was set aside. */
  #lastInode: number | undefined;
  #journalTriedMs = 0;

  constructor(options: InboxOptions) {
    this.#options = options;
  }

  /** Makes the file where it is missing, so that a POS can insert. */
  prepare(): void {
    this.#use(() => undefined);
  }

  /**
   * The oldest rows, at most `limit` of each table. Acknowledgements are given only when no count is left
   * behind, so that a count inserted before an acknowledgement is never taken in after it.
   */
  read(limit = 1000): InboxBatch {
    return this.#use((rows) => rows.read(limit));
  }

  waiting(): InboxWaiting {
    return this.#use((rows) => rows.waiting());
  }

  /** Empties what was copied. Rows that are gone already are no matter. */
  remove(taken: readonly InboxRow[]): void {
    this.#use((rows) => rows.remove(taken));
  }

  /** Hands acknowledgements over as a POS does. Keys that are there already are no matter. */
  insertAcks(acks: readonly { orderId: string; key: string }[]): void {
    this.#use((_rows, db) => {
      const insert = db.prepare('INSERT OR IGNORE INTO order_acks (order_id, change_key) VALUES (?, ?)');
      db.transaction(() => {
        requireSchema(db, this.#options.path);
        for (const { orderId, key } of acks) insert.run(orderId, key);
      }).immediate();
    });
  }

  /** Damaged files that are kept beside the inbox until somebody takes them away. */
  keptFiles(): string[] {
    return keptFiles(this.#options.path);
  }

  close(): void {
    this.#open?.db.close();
    this.#open = undefined;
  }

  #use<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    try {
      return this.#run(action);
    } catch (error) {
      // The handle leads to a file that was deleted or moved between the check and the write.
      if (hasCode(error, 'storage-readonly') && this.#open && !this.#isThere(this.#open)) {
        return this.#run(action);
      }
      if (!hasCode(error, 'storage-corrupt')) throw error;
      return this.#lookAgain(action);
    }
  }

  /** A disk that could not read for a moment leaves a sound file: it is opened anew before it counts as damaged. */
  #lookAgain<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    this.close();
    requireReadable(this.#options.path);
    try {
      return this.#run(action);
    } catch (error) {
      if (!hasCode(error, 'storage-corrupt')) throw error;
      this.close();
      requireReadable(this.#options.path);
      this.#lastInode = undefined;
      const keptAt = setAside(this.#options.path, this.#options.clock);
      this.#options.onTrouble({
        kind: 'damaged',
        keptAt,
        message: `${damageIn(error, this.#options.path)} It is kept as ${keptAt}; a new inbox is in its place. Changes that were not taken in yet are in the old file.`,
      });
      return this.#run(action);
    }
  }

  #run<T>(action: (rows: InboxRows, db: OpenInbox['db']) => T): T {
    this.#clearTheWay();
    const { rows, db } = this.#current();
    return storing(() => action(rows, db));
  }

  #clearTheWay(): void {
    const { path, clock, onTrouble } = this.#options;
    const strange = strangeSideFiles(path);
    if (strange.length === 0) return;
    this.close();
    for (const each of strange) {
      const keptAt = moveAway(each.path, clock);
      onTrouble({
        kind: 'obstructed',
        keptAt,
        message: `${each.path} was ${each.what} and no plain file, so the inbox could not be used. It was moved to ${keptAt}; the inbox is used again.`,
      });
    }
  }

  #current(): OpenInbox & { rows: InboxRows } {
    if (this.#open && this.#isThere(this.#open) && !this.#logIsDue(this.#open)) return this.#open;
    const { path } = this.#options;
    const inode = inodeAt(path);
    const lastInode = this.#lastInode;
    this.close();
    const opened = openInboxFile(this.#options);
    try {
      // A POS may change tables at any time; SQLite counts each change of the schema.
      const version = opened.db.prepare<[], number>('PRAGMA schema_version').pluck();
      let known: number | undefined;
      const requireSame = () => {
        const now = version.get();
        if (now !== known) requireSchema(opened.db, path);
        known = now;
      };
      this.#open = {
        ...opened,
        rows: storing(() => new InboxRows(opened.db, opened.inode, requireSame)),
      };
    } catch (error) {
      opened.db.close();
      throw error;
    }
    this.#lastInode = opened.inode;
    if (lastInode !== undefined && lastInode !== inode)
      this.#tellOfNewFile(inode === 0 ? 'deleted' : 'replaced');
    return this.#open;
  }

  /** Whether to open the file anew, which switches off a write-ahead log that a POS has switched on. */
  #logIsDue({ db }: OpenInbox): boolean {
    const nowMs = this.#options.clock.nowMs();
    if (Math.abs(nowMs - this.#journalTriedMs) < JOURNAL_EVERY_MS) return false;
    this.#journalTriedMs = nowMs;
    return !hasRollbackJournal(db);
  }

  #isThere(open: OpenInbox): boolean {
    return inodeAt(this.#options.path) === open.inode;
  }

  #tellOfNewFile(kind: 'deleted' | 'replaced'): void {
    const { path, onTrouble } = this.#options;
    const what =
      kind === 'deleted' ? 'was deleted; a new one is in its place' : 'was replaced; the new one is used';
    onTrouble({
      kind,
      keptAt: null,
      message: `The inbox ${path} ${what}. Changes that were not taken in yet went with the old file.`,
    });
  }
}

/** What is wrong with the file, without what else the error says of a database that is left where it is. */
function damageIn(error: TillsyncError, path: string): string {
  const { cause } = error;
  if (!(cause instanceof Error && 'code' in cause)) return error.message;
  return `The inbox ${path} cannot be used. SQLite says: ${String(cause.code)}.`;
}
