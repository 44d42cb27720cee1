import { sqlOf } from '../../db/sqlite.ts';
import type { MirrorFile } from '../reading/mirror-file.ts';
import { QUARANTINE, type QuarantineDetail, type QuarantineEntry } from '../reading/order-queries.ts';
import { removeFromQuarantine } from './quarantine.ts';

/** Reads and deletes quarantined entries of the mirror. */
export class QuarantineStore {
  readonly #file: Pick<MirrorFile, 'read' | 'write'>;

  constructor(file: Pick<MirrorFile, 'read' | 'write'>) {
    this.#file = file;
  }

  /** Returns quarantined entries, newest first. */
  list(limit: number): QuarantineEntry[] {
    const sql = `SELECT ${QUARANTINE} FROM _quarantine ORDER BY quarantine_id DESC LIMIT ?`;
    return this.#file.read((db) => sqlOf(db).rows<QuarantineEntry>(sql, limit));
  }

  get(quarantineId: number): QuarantineDetail | undefined {
    const sql = `SELECT ${QUARANTINE}, payload FROM _quarantine WHERE quarantine_id = ?`;
    return this.#file.read((db) => sqlOf(db).row<QuarantineDetail>(sql, quarantineId));
  }

  /** Deletes a quarantined entry. Returns false if there was none. */
  remove(quarantineId: number): Promise<boolean> {
    return this.#file.write((db) => removeFromQuarantine(db, quarantineId));
  }
}
