import type Database from 'better-sqlite3';
import { type AlarmMemory, type AlarmMemoryStore, NOTHING_TOLD } from '../../domain/health/alarm-news.ts';
import type { AlarmTestWish, AlarmTestWishes } from '../../domain/health/alarm-test.ts';
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

/** A row beside the memories, under a name that no receiver has. */
const TEST = 'alarms.test';

/** What commands and the daemon tell each other of a test message. */
export class AlarmTestRows implements AlarmTestWishes {
  readonly #select: Database.Statement<[string], string>;
  readonly #upsert: Database.Statement<[string, string]>;

  constructor({ db }: { db: Database.Database }) {
    this.#select = db.prepare<[string], string>('SELECT memory FROM alarm_memory WHERE receiver = ?').pluck();
    this.#upsert = db.prepare('INSERT OR REPLACE INTO alarm_memory (receiver, memory) VALUES (?, ?)');
  }

  read(): AlarmTestWish | undefined {
    const text = storing(() => this.#select.get(TEST));
    return text === undefined ? undefined : JSON.parse(text);
  }

  write(wish: AlarmTestWish): void {
    storing(() => this.#upsert.run(TEST, JSON.stringify(wish)));
  }
}
