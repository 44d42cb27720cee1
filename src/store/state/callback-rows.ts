import type Database from 'better-sqlite3';
import type { CallbackStore, KeptCallback } from '../../domain/callback.ts';
import { storing } from '../sqlite.ts';

const KEPT = 1_000;

type Row = { id: number; entry: string };

/** The last callbacks, each as one row. */
export class CallbackRows implements CallbackStore {
  readonly #select: Database.Statement<[number, number], Row>;
  readonly #keep: (callbacks: Parameters<CallbackStore['keep']>[0]) => number[];

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare('SELECT id, entry FROM callbacks WHERE id > ? ORDER BY id DESC LIMIT ?');
    const insert = db.prepare('INSERT INTO callbacks (entry) VALUES (?)');
    const update = db.prepare('UPDATE callbacks SET entry = ? WHERE id = ?');
    const trim = db.prepare(`DELETE FROM callbacks WHERE id <= (SELECT max(id) FROM callbacks) - ${KEPT}`);
    const keeping = db.transaction((callbacks: Parameters<CallbackStore['keep']>[0]) => {
      const ids = callbacks.map(({ id, ...callback }) => {
        const entry = JSON.stringify(callback);
        if (id === null) return Number(insert.run(entry).lastInsertRowid);
        update.run(entry, id);
        return id;
      });
      trim.run();
      return ids;
    });
    this.#keep = (callbacks) => keeping.immediate(callbacks);
  }

  keep(callbacks: Parameters<CallbackStore['keep']>[0]): number[] {
    return storing(() => this.#keep(callbacks));
  }

  list(after: number, limit: number): KeptCallback[] {
    const rows = storing(() => this.#select.all(after, limit));
    return rows.reverse().map(({ id, entry }) => ({ ...JSON.parse(entry), id }));
  }
}
