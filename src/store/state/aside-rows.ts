import type Database from 'better-sqlite3';
import type { AlarmUp } from '../../domain/health/alarm-news.ts';
import { storing } from '../sqlite.ts';

/** The alarms that the daemon could not write into the mirror. */
export class AsideRows {
  readonly #select: Database.Statement<[], AlarmUp>;
  readonly #replace: (alarms: readonly AlarmUp[]) => void;

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare('SELECT key, message, raised_at AS raisedAt FROM alarms_aside ORDER BY key');
    const clear = db.prepare('DELETE FROM alarms_aside');
    const insert = db.prepare(
      'INSERT INTO alarms_aside (key, message, raised_at) VALUES (@key, @message, @raisedAt)',
    );
    const replacing = db.transaction((alarms: readonly AlarmUp[]) => {
      clear.run();
      for (const { key, message, raisedAt } of alarms) insert.run({ key, message, raisedAt });
    });
    this.#replace = (alarms) => replacing.immediate(alarms);
  }

  list(): AlarmUp[] {
    return storing(() => this.#select.all());
  }

  replace(alarms: readonly AlarmUp[]): void {
    storing(() => {
      if (alarms.length > 0 || this.#select.get() !== undefined) this.#replace(alarms);
    });
  }
}
