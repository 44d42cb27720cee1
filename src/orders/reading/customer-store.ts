import type Database from 'better-sqlite3';
import { isoUtc } from '../../core/time.ts';
import { mark } from '../../db/marks.ts';
import { sqlOf } from '../../db/sqlite.ts';
import { hasRoomInWal, truncateWal } from '../../db/wal.ts';
import { forgetCustomer, forgetQuarantined, TO_CLEAN } from '../merging/anonymize.ts';
import type { OrderSpellings } from '../merging/field-aliases.ts';
import type { MirrorFile } from './mirror-file.ts';

interface CustomerStoreOptions {
  file: MirrorFile;
  spellings: OrderSpellings;
  /** Rewrites the mirror's file. Resolves to false if a reader prevented the removal of old bytes. */
  vacuum: () => Promise<boolean>;
}

/** Removes customers from the mirror. */
export class CustomerStore {
  readonly #options: CustomerStoreOptions;

  constructor(options: CustomerStoreOptions) {
    this.#options = options;
  }

  /**
   * Removes the customers of these orders durably, and returns their number. `clean` must then remove the remaining
   * bytes.
   */
  forgetAll(orderIds: readonly string[]): Promise<number> {
    const { file, spellings } = this.#options;
    const at = isoUtc(file.clock.nowMs());
    return file.write(
      (db) => orderIds.filter((orderId) => forgetCustomer(db, orderId, spellings, at)).length,
    );
  }

  /**
   * Removes the customer of one order at a person's request, also from quarantine. `note` runs in the same
   * transaction. Returns false if the customer was removed before.
   */
  forget(orderId: string, note: (db: Database.Database) => void): Promise<boolean> {
    const { file, spellings } = this.#options;
    const at = isoUtc(file.clock.nowMs());
    return file.write((db) => {
      forgetQuarantined(db, orderId);
      const isNew = forgetCustomer(db, orderId, spellings, at);
      if (isNew) note(db);
      return isNew;
    });
  }

  /**
   * Rewrites the file if customers were removed after its last rewrite, so that none of their bytes remain. Callbacks
   * wait for the rewrite, about 1 s per 100 MiB. Returns false if a reader blocks the log's truncation; then call again
   * later.
   */
  async clean(): Promise<boolean> {
    const { file, vacuum } = this.#options;
    const waiting = file.read((db) => mark(db, TO_CLEAN)) ?? 0;
    if (waiting === 0) return true;
    const isAnew = waiting < 0;
    // While a reader blocks the log's truncation, each rewrite would add a copy of the whole file to the log.
    if (!file.read(isAnew ? truncateWal : hasRoomInWal)) return false;
    const isClean = isAnew || (await vacuum());
    const sql = 'UPDATE marks SET value = ? WHERE name = ? AND value = ?';
    await file.write((db) => sqlOf(db).run(sql, isClean ? 0 : -waiting, TO_CLEAN, waiting));
    return isClean;
  }
}
