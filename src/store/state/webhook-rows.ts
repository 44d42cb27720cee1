import type Database from 'better-sqlite3';
import {
  asWebhookMemory,
  NO_WEBHOOK_MEMORY,
  type WebhookMemory,
  type WebhookMemoryStore,
} from '../../domain/platform/webhook-memory.ts';
import { storing } from '../sqlite.ts';

/** The webhook's memory as one row, so that a change is all or nothing. */
export class WebhookRows implements WebhookMemoryStore {
  readonly #db: Database.Database;
  readonly #select: Database.Statement<[], string>;
  readonly #upsert: Database.Statement<[string]>;

  readonly #onSecret: (value: string) => void;
  #toldText = '';

  constructor(options: { db: Database.Database; onSecret?: ((value: string) => void) | undefined }) {
    this.#onSecret = options.onSecret ?? (() => {});
    this.#db = options.db;
    this.#select = options.db.prepare<[], string>('SELECT memory FROM webhook').pluck();
    this.#upsert = options.db.prepare('INSERT OR REPLACE INTO webhook (one, memory) VALUES (1, ?)');
  }

  read(): WebhookMemory {
    const text = storing(() => this.#select.get());
    if (text === undefined) return NO_WEBHOOK_MEMORY;
    const memory = asWebhookMemory(JSON.parse(text));
    if (text !== this.#toldText) this.#tell(memory);
    this.#toldText = text;
    return memory;
  }

  update(change: (memory: WebhookMemory) => WebhookMemory): void {
    const updating = this.#db.transaction(() => {
      const memory = change(this.read());
      this.#tell(memory);
      this.#upsert.run(JSON.stringify(memory));
    });
    storing(() => updating.immediate());
  }

  #tell({ current, previous, pending }: WebhookMemory): void {
    for (const secret of [current, previous, ...pending]) if (secret !== null) this.#onSecret(secret);
  }
}
