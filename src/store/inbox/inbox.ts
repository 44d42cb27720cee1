import { readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { hasCode } from '../../domain/errors.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { storing, toStorageError } from '../sqlite.ts';
import { inodeAt, type OpenInbox, openInboxFile, requireReadable, setAside } from './inbox-file.ts';
import { type InboxBatch, InboxRows } from './inbox-rows.ts';

export interface InboxOptions {
  /** `inbox/inbox.db` in the storage directory. */
  path: string;
  /** Unix group, by name or number, that may insert; left out: the storage directory decides. */
  group?: string | undefined;
  clock: Clock;
  /** Told when the file was found damaged, deleted or replaced; a sentence for a person. */
  onTrouble: (trouble: InboxTrouble) => void;
}

/**
 * - `damaged`: it could not be used; it is kept at `keptAt`, and a new one is in its place
 * - `deleted`: somebody removed it; a new one is in its place
 * - `replaced`: somebody put another file there, which is used now
 */
export interface InboxTrouble {
  kind: 'damaged' | 'deleted' | 'replaced';
  keptAt: string | null;
  message: string;
}

/**
 * The database into which a POS inserts by SQL. It belongs to another Unix user as much as to tillsync, so it may
 * be locked, damaged, deleted or replaced at any time; none of that stops more than the inbox. Methods throw
 * `storage-busy` while a POS holds its lock, after at most 50 ms.
 */
export class Inbox {
  readonly #options: InboxOptions;
  #open: (OpenInbox & { rows: InboxRows }) | undefined;
  /** Of the file that was open last; undefined when it was set aside. */
  #lastInode: number | undefined;

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

  /** Empties what was copied. Rows that are gone already are no matter. */
  remove(batch: InboxBatch): void {
    this.#use((rows) => rows.remove(batch));
  }

  /** Damaged files that are kept beside the inbox until somebody takes them away. */
  keptFiles(): string[] {
    const { path } = this.#options;
    const prefix = `${basename(path)}.damaged-`;
    const isOne = (name: string) => name.startsWith(prefix) && !/-(journal|wal|shm)$/.test(name);
    try {
      return readdirSync(dirname(path))
        .filter(isOne)
        .sort()
        .map((name) => join(dirname(path), name));
    } catch (error) {
      throw toStorageError(error, path);
    }
  }

  close(): void {
    this.#open?.db.close();
    this.#open = undefined;
  }

  #use<T>(action: (rows: InboxRows) => T): T {
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
  #lookAgain<T>(action: (rows: InboxRows) => T): T {
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
        message: `${error.message} It is kept as ${keptAt}; a new inbox is in its place. Changes that were not taken in yet are in the old file.`,
      });
      return this.#run(action);
    }
  }

  #run<T>(action: (rows: InboxRows) => T): T {
    const { rows } = this.#current();
    return storing(() => action(rows));
  }

  #current(): { rows: InboxRows } {
    if (this.#open && this.#isThere(this.#open)) return this.#open;
    const inode = inodeAt(this.#options.path);
    const lastInode = this.#lastInode;
    this.close();
    const opened = openInboxFile(this.#options);
    try {
      this.#open = { ...opened, rows: storing(() => new InboxRows(opened.db)) };
    } catch (error) {
      opened.db.close();
      throw error;
    }
    this.#lastInode = opened.inode;
    if (lastInode !== undefined && lastInode !== inode)
      this.#tellOfNewFile(inode === 0 ? 'deleted' : 'replaced');
    return this.#open;
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
