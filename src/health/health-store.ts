import type Database from 'better-sqlite3';
import {
  type AlarmKey,
  type FindingLevel,
  FRESHNESS_SUBJECTS,
  type Freshness,
  type FreshnessState,
  type FreshnessSubject,
} from '../core/alarm.ts';
import { toldText } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import { sqlOf } from '../db/sqlite.ts';
import type { MirrorHealth, RaisedAlarm } from '../orders/reading/mirror.ts';
import type { MirrorFile } from '../orders/reading/mirror-file.ts';

interface PendingAlarm {
  /** Message of the alarm; null means that the alarm ended. */
  message: string | null;
  level: FindingLevel | null;
  at: string;
}

const NO_FAILURE = { code: null, since: null, tries: 0 };

/** Stores a flow's freshness. If `lastOkAt` is null, the stored value is kept. */
function setFreshness(db: Database.Database, freshness: Freshness): void {
  const { failure: _, ...rest } = freshness;
  sqlOf(db).run(
    `INSERT INTO freshness (subject, last_ok_at, last_try_at, state, message, failure_code, failing_since, failures)
     VALUES (@subject, @lastOkAt, @lastTryAt, @state, @message, @code, @since, @tries)
     ON CONFLICT (subject) DO UPDATE SET last_ok_at = coalesce(excluded.last_ok_at, last_ok_at),
       last_try_at = excluded.last_try_at, state = excluded.state, message = excluded.message,
       failure_code = excluded.failure_code, failing_since = excluded.failing_since, failures = excluded.failures`,
    { ...NO_FAILURE, ...freshness.failure, ...rest },
  );
}

function storedFreshness(db: Database.Database): Freshness[] {
  const sql = `SELECT subject, last_ok_at AS lastOkAt, last_try_at AS lastTryAt, state, message,
    failure_code AS code, failing_since AS since, failures AS tries FROM freshness`;
  const rows = sqlOf(db).rows<
    Omit<Freshness, 'failure'> & { code: string | null; since: string; tries: number }
  >(sql);
  return rows.map(({ code, since, tries, ...rest }) =>
    code === null ? rest : { ...rest, failure: { code, since, tries } },
  );
}

function setAlarm(db: Database.Database, key: AlarmKey, { message, level, at }: PendingAlarm): void {
  if (message === null) {
    sqlOf(db).run('DELETE FROM alarms WHERE key = ?', key);
    return;
  }
  sqlOf(db).run(
    `INSERT INTO alarms (key, message, level, raised_at, changed_at) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (key) DO UPDATE
       SET message = excluded.message, level = excluded.level, changed_at = excluded.changed_at
       WHERE message <> excluded.message OR level IS NOT excluded.level`,
    ...[key, message, level, at, at],
  );
}

/** Returns the raised alarms, oldest first. */
function storedAlarms(db: Database.Database): RaisedAlarm[] {
  const sql = `SELECT key, message, level, raised_at AS raisedAt, changed_at AS changedAt FROM alarms
    ORDER BY raised_at, key`;
  return sqlOf(db).rows<RaisedAlarm>(sql);
}

/**
 * Stores freshness and alarms. Reporting is synchronous although the database may be busy: a report takes effect in
 * this process at once and is written afterwards. A failed write is repeated with the next report.
 */
export class HealthStore implements MirrorHealth {
  readonly #file: MirrorFile;
  readonly #freshness = new Map<FreshnessSubject, Freshness>();
  readonly #alarms = new Map<AlarmKey, PendingAlarm>();
  #flushing: Promise<void> | undefined;
  onUnwritten: (alarms: readonly RaisedAlarm[]) => void = () => {};
  /** Whether `onUnwritten` was told of alarms; true at first, because an earlier process may have told of some. */
  #isToldUnwritten = true;

  constructor(file: MirrorFile) {
    this.#file = file;
  }

  ok(subject: FreshnessSubject, message = ''): void {
    const now = this.#now();
    this.#put({ subject, lastOkAt: now, lastTryAt: now, state: 'ok', message });
  }

  report(subject: FreshnessSubject, state: FreshnessState, message: string, code?: string): void {
    const now = this.#now();
    const before = this.#flowOf(subject);
    const isSame = code !== undefined && before?.failure?.code === code;
    const { since = now, tries = 0 } = isSame ? (before.failure ?? {}) : {};
    const failure = code === undefined ? {} : { failure: { code, since, tries: tries + 1 } };
    this.#put({ subject, lastOkAt: before?.lastOkAt ?? null, lastTryAt: now, state, message, ...failure });
  }

  /** Returns a flow's freshness, or undefined if the database is unavailable or has no row. */
  #flowOf(subject: FreshnessSubject): Freshness | undefined {
    const pending = this.#freshness.get(subject);
    if (pending) return pending;
    try {
      return this.#file.read(storedFreshness).find((flow) => flow.subject === subject);
    } catch {
      return undefined;
    }
  }

  put(db: Database.Database, freshness: Freshness): void {
    setFreshness(db, freshness);
  }

  adopt(freshness: Freshness): void {
    this.#put(freshness);
  }

  note(key: AlarmKey, trouble: string | null, level: FindingLevel | null = null): void {
    this.#putAlarm(key, trouble === null ? null : toldText(trouble), trouble === null ? null : level);
  }

  freshness(): Freshness[] {
    const stored = new Map(this.#file.read(storedFreshness).map((each) => [each.subject, each]));
    const subjects = FRESHNESS_SUBJECTS.filter(
      (subject) => subject !== 'hub.link' || stored.has(subject) || this.#freshness.has(subject),
    );
    return subjects.map((subject): Freshness => {
      const pending = this.#freshness.get(subject);
      const before = stored.get(subject);
      if (pending) return { ...pending, lastOkAt: pending.lastOkAt ?? before?.lastOkAt ?? null };
      return before ?? { subject, lastOkAt: null, lastTryAt: null, state: 'unknown', message: '' };
    });
  }

  lastOkMs(subject: FreshnessSubject): number | null {
    const iso = this.freshness().find((flow) => flow.subject === subject)?.lastOkAt;
    const ms = iso == null ? Number.NaN : Date.parse(iso);
    return Number.isNaN(ms) ? null : ms;
  }

  isHeardLate(): boolean {
    return this.freshness().some(
      ({ subject, state }) => subject === 'orders.webhook' && (state === 'off' || state === 'degraded'),
    );
  }

  raised(): RaisedAlarm[] {
    const up = new Map(this.#file.read(storedAlarms).map((alarm) => [alarm.key, alarm]));
    for (const [key, { message, level, at }] of this.#alarms) {
      if (message === null) up.delete(key);
      else up.set(key, { key, message, level, raisedAt: up.get(key)?.raisedAt ?? at, changedAt: at });
    }
    return [...up.values()];
  }

  notifyUnwritten(): void {
    const raised = [...this.#alarms].flatMap(([key, { message, level, at }]) =>
      message === null ? [] : { key, message, level, raisedAt: at, changedAt: at },
    );
    if (raised.length === 0 && !this.#isToldUnwritten) return;
    try {
      this.onUnwritten(raised);
      this.#isToldUnwritten = raised.length > 0;
    } catch {
      // Told again after the next write.
    }
  }

  async flush(): Promise<void> {
    this.#flushing ??= this.#write();
    await this.#flushing;
  }

  #now(): string {
    return isoUtc(this.#file.clock.nowMs());
  }

  #put({ message, ...rest }: Freshness): void {
    this.#freshness.set(rest.subject, { ...rest, message: message === '' ? '' : toldText(message) });
    void this.flush();
  }

  #putAlarm(key: AlarmKey, message: string | null, level: FindingLevel | null): void {
    const before = this.#alarmOf(key);
    if (before?.message === message && before.level === level) return;
    this.#alarms.set(key, { message, level, at: this.#now() });
    void this.flush();
  }

  /**
   * Returns an alarm's state, with a null message if the alarm is not raised; undefined if the database is unavailable.
   */
  #alarmOf(key: AlarmKey): Pick<PendingAlarm, 'message' | 'level'> | undefined {
    const pending = this.#alarms.get(key);
    if (pending) return pending;
    try {
      const sql = 'SELECT message, level FROM alarms WHERE key = ?';
      const stored = this.#file.read((db) =>
        sqlOf(db).row<Pick<PendingAlarm, 'message' | 'level'>>(sql, key),
      );
      return stored ?? { message: null, level: null };
    } catch {
      return undefined;
    }
  }

  async #write(): Promise<void> {
    // Waits, so that all reports of one turn of the event loop are written in one transaction.
    await Promise.resolve();
    while ((this.#freshness.size > 0 || this.#alarms.size > 0) && !this.#file.closed) {
      const freshness = [...this.#freshness];
      const alarms = [...this.#alarms];
      try {
        await this.#file.writeNow((db) => {
          for (const [, each] of freshness) setFreshness(db, each);
          for (const [key, alarm] of alarms) setAlarm(db, key, alarm);
        });
      } catch {
        // The reports stay pending. The code that stores orders fails on the same disk and raises the alarm.
        break;
      }
      deleteSame(this.#freshness, freshness);
      deleteSame(this.#alarms, alarms);
    }
    this.notifyUnwritten();
    // Reset without an await after the loop's last check, so that a later report starts a new write.
    this.#flushing = undefined;
  }
}

function deleteSame<Key, Value>(map: Map<Key, Value>, written: readonly (readonly [Key, Value])[]): void {
  for (const [key, value] of written) if (map.get(key) === value) map.delete(key);
}
