import type Database from 'better-sqlite3';
import type { FeedMemory } from '../../domain/order/feed-memory.ts';
import { storing } from '../sqlite.ts';

/** How far the feed of the mirror has got, as one row. */
export class FeedRows implements FeedMemory {
  readonly #select: Database.Statement<[], number>;
  readonly #raise: Database.Statement<[number]>;

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare<[], number>('SELECT seq FROM feed').pluck();
    this.#raise = db.prepare(`
      INSERT INTO feed (one, seq) VALUES (1, ?)
      ON CONFLICT DO UPDATE SET seq = excluded.seq WHERE excluded.seq > seq`);
  }

  highestSeq(): number | undefined {
    return storing(() => this.#select.get());
  }

  noteSeq(seq: number): void {
    storing(() => this.#raise.run(seq));
  }
}
