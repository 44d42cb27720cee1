import type Database from 'better-sqlite3';
import { type AlarmMemory, type AlarmMemoryStore, NOTHING_TOLD } from '../../domain/health/alarm-news.ts';
import { storing } from '../sqlite.ts';

/** The memory of each receiver of alarms as one row, so that a change is all or nothing. */
export class AlarmRows implements AlarmMemoryStore {
  readonly #select: Database.Statement<[string], string>;
  readonly #upsert: Database.Statement<[string, string]>;

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare<[string], string>('SELECT memory FROM alarm_memory WHERE receiver = ?').pluck();
    this.#upsert = db.prepare('INSERT OR REPLACE INTO alarm_memory (receiver, memory) VALUES (?, ?)');
  }

  read(receiver: string): AlarmMemory {
    const text = storing(() => this.#select.get(receiver));
    return text === undefined ? NOTHING_TOLD : { ...NOTHING_TOLD, ...JSON.parse(text) };
  }

  write(receiver: string, memory: AlarmMemory): void {
    storing(() => this.#upsert.run(receiver, JSON.stringify(memory)));
  }
}
