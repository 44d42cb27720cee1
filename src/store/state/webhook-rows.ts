import type Database from 'better-sqlite3';
import {
  NO_WEBHOOK_MEMORY,
  type WebhookMemory,
  type WebhookMemoryStore,
} from '../../domain/webhook-memory.ts';
import { storing } from '../sqlite.ts';

/** The webhook's memory as one row, so that a change is all or nothing. */
export class WebhookRows implements WebhookMemoryStore {
  readonly #db: Database.Database;
  readonly #select: Database.Statement<[], string>;
  readonly #upsert: Database.Statement<[string]>;

  constructor(options: { db: Database.Database }) {
    this.#db = options.db;
    this.#select = options.db.prepare<[], string>('SELECT memory FROM webhook').pluck();
    this.#upsert = options.db.prepare('INSERT OR REPLACE INTO webhook (one, memory) VALUES (1, ?)');
  }

  read(): WebhookMemory {
    const text = storing(() => this.#select.get());
    return text === undefined ? NO_WEBHOOK_MEMORY : { ...NO_WEBHOOK_MEMORY, ...JSON.parse(text) };
  }

  update(change: (memory: WebhookMemory) => WebhookMemory): void {
    const updating = this.#db.transaction(() => this.#upsert.run(JSON.stringify(change(this.read()))));
    storing(() => updating.immediate());
  }
}
