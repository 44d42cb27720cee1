import type Database from 'better-sqlite3';
import type { AlarmKey } from '../../domain/health/alarm.ts';
import type { Freshness } from '../../domain/health/freshness.ts';

/** An alarm that is up. */
export interface RaisedAlarm {
  key: AlarmKey;
  message: string;
  raisedAt: string;
  /** When its message last changed. */
  changedAt: string;
}

/** Statements on `freshness` and `alarms`, and the mark of the last complete poll. */
export class BoardRows {
  readonly #setFreshness: Database.Statement;
  readonly #freshness: Database.Statement<[], Freshness>;
  readonly #raise: Database.Statement;
  readonly #lower: Database.Statement;
  readonly #alarms: Database.Statement<[], RaisedAlarm>;
  readonly #notePoll: Database.Statement<[number]>;
  readonly #lastPoll: Database.Statement<[], number>;

  constructor(db: Database.Database) {
    this.#setFreshness = db.prepare(`
      INSERT INTO freshness (subject, last_ok_at, last_try_at, state, message)
      VALUES (@subject, @lastOkAt, @lastTryAt, @state, @message)
      ON CONFLICT (subject) DO UPDATE SET last_ok_at = coalesce(excluded.last_ok_at, last_ok_at),
        last_try_at = excluded.last_try_at, state = excluded.state, message = excluded.message`);
    this.#freshness = db.prepare(`
      SELECT subject, last_ok_at AS lastOkAt, last_try_at AS lastTryAt, state, message
      FROM freshness`);
    this.#raise = db.prepare(`
      INSERT INTO alarms (key, message, raised_at, changed_at) VALUES (?, ?, ?, ?)
      ON CONFLICT (key) DO UPDATE SET message = excluded.message, changed_at = excluded.changed_at
        WHERE message <> excluded.message`);
    this.#lower = db.prepare('DELETE FROM alarms WHERE key = ?');
    this.#alarms = db.prepare(
      'SELECT key, message, raised_at AS raisedAt, changed_at AS changedAt FROM alarms ORDER BY raised_at, key',
    );
    this.#notePoll = db.prepare(
      "INSERT INTO marks (name, value) VALUES ('orders.asked-ms', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    );
    this.#lastPoll = db.prepare<[], number>("SELECT value FROM marks WHERE name = 'orders.asked-ms'").pluck();
  }

  /** `askedMs`: on the platform's clock. */
  notePoll(askedMs: number): void {
    this.#notePoll.run(Math.round(askedMs));
  }

  lastPollAskedMs(): number | undefined {
    return this.#lastPoll.get();
  }

  /** `lastOkAt` null leaves the one that is there. */
  setFreshness(freshness: Freshness): void {
    this.#setFreshness.run(freshness);
  }

  freshness(): Freshness[] {
    return this.#freshness.all();
  }

  raise(key: AlarmKey, message: string, at: string): void {
    this.#raise.run(key, message, at, at);
  }

  lower(key: AlarmKey): void {
    this.#lower.run(key);
  }

  /** Oldest first. */
  alarms(): RaisedAlarm[] {
    return this.#alarms.all();
  }
}
