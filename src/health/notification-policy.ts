import type Database from 'better-sqlite3';
import type { AlarmUp, FindingLevel } from '../core/alarm.ts';
import { isoUtc } from '../core/time.ts';
import { factOf, removeFact, setFact } from '../db/facts.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import type { Finding } from './facts.ts';
import { FINDINGS, type FindingCode } from './findings.ts';
import type { HeartbeatMemory } from './heartbeat.ts';
import type { Assessment } from './verdict.ts';

/**
 * A message to a person:
 * - `raised`, `healed`: an alarm began or ended, once each
 * - `reminder`: it still lasts
 * - `muted`: the day's last message, which says that no more follow today
 */
export interface Notification {
  state: 'raised' | 'healed' | 'reminder' | 'muted';
  key: FindingCode | 'alarms.daily-max';
  level: FindingLevel;
  detail: string | null;
  /** Message and remedy that fit the finding's cause; if left out, those of the finding's row apply. */
  words?: Pick<Finding, 'message' | 'remedy' | 'cause' | 'count'>;
  /** When the fault began, ISO 8601 UTC; null for `muted`, or if unknown. */
  since: string | null;
}

/** Kinds of receivers of alarms. */
export type ReceiverName = 'command' | 'url';

/** What one receiver was notified of. It is stored, so that it survives restarts. */
export interface AlarmMemory {
  /** Alarms of which the receiver was notified, but not yet of their end. */
  told: Readonly<Partial<Record<FindingCode, { since: string; toldAtMs: number; level: FindingLevel }>>>;
  /** Calendar day to which `sent` belongs. */
  day: string;
  sent: number;
}

export const NOTHING_SENT: AlarmMemory = { told: {}, day: '', sent: 0 };

export interface AlarmRules {
  /** Lowest level of alarms that are sent. */
  level: FindingLevel;
  /** Time that an alarm must last before it is sent, and be over before its end is sent. */
  settleMs: number;
  /** Interval at which a lasting alarm is sent again; 0 means never. */
  repeatMs: number;
  /** Maximum number of messages per calendar day, not counting the `muted` one. */
  dailyMax: number;
}

export interface Moment {
  nowMs: number;
  monotonicMs: number;
  /** Calendar day in the shop's time zone, such as `2026-11-21`. */
  day: string;
}

const ORDER = Object.keys(FINDINGS);

interface Seen {
  isUp: boolean;
  sinceMonoMs: number;
  sinceMs: number;
  /** True if the fault had lasted before it was found, so that it is sent at once. */
  hasLasted: boolean;
}

/**
 * Decides which message is sent next. A finding that ends within the settling time is never sent, unless its fault had
 * lasted before it was found.
 */
export class NotificationPolicy {
  readonly #rules: AlarmRules;
  readonly #seen = new Map<FindingCode, Seen>();
  /** Findings that were hidden at the last check. */
  readonly #hidden = new Set<FindingCode>();
  #up: readonly Finding[] = [];

  constructor(rules: AlarmRules) {
    this.#rules = rules;
  }

  /**
   * Records the present findings. A hidden finding may or may not exist, so neither its start nor its end is sent.
   */
  observe(
    { findings, hidden }: Assessment,
    memory: AlarmMemory,
    at: Pick<Moment, 'nowMs' | 'monotonicMs'>,
  ): void {
    this.#up = findings
      .filter(({ code, level }) => isSent(code, level))
      .sort((a, b) => ORDER.indexOf(a.code) - ORDER.indexOf(b.code));
    const codesUp = new Set(this.#up.map(({ code }) => code));
    const known = [...codesUp, ...hidden, ...this.#hidden, ...this.#seen.keys(), ...toldCodes(memory)];
    for (const code of new Set(known)) {
      const isUp = codesUp.has(code);
      // A hidden finding is forgotten, so that its settling time begins when its cause is over. In that time, a mere
      // consequence can end by itself.
      if (hidden.has(code) || this.#follows(code, codesUp, at.monotonicMs)) {
        this.#seen.delete(code);
        this.#hidden.add(code);
        continue;
      }
      const wasHidden = this.#hidden.delete(code);
      if (this.#seen.get(code)?.isUp !== isUp) {
        const hasLasted = isUp && FINDINGS[code].lasted === true && !wasHidden;
        this.#seen.set(code, { isUp, sinceMonoMs: at.monotonicMs, sinceMs: at.nowMs, hasLasted });
      }
    }
  }

  #follows(code: FindingCode, up: ReadonlySet<FindingCode>, monotonicMs: number): boolean {
    const { follows } = FINDINGS[code];
    if (!follows) return false;
    const { isUp = true, sinceMonoMs = 0 } = this.#seen.get(follows.code) ?? {};
    return up.has(follows.code) || (!isUp && monotonicMs - sinceMonoMs < follows.withinMs);
  }

  /** Returns the next message, causes before consequences; undefined if there is none. */
  next(memory: AlarmMemory, at: Moment): Notification | undefined {
    const notification = this.#raised(memory, at) ?? this.#healed(memory, at) ?? this.#reminder(memory, at);
    const sent = sentOn(memory, at.day);
    if (!notification || sent < this.#rules.dailyMax) return notification;
    if (sent > this.#rules.dailyMax) return undefined;
    return { state: 'muted', key: 'alarms.daily-max', level: 'amber', detail: null, since: null };
  }

  #raised(memory: AlarmMemory, at: Moment): Notification | undefined {
    const { level } = this.#rules;
    const found = this.#up.find(
      (finding) =>
        !isTold(finding, memory) &&
        this.#isSettled(finding.code, at) &&
        (level === 'amber' || finding.level === 'red'),
    );
    return found && this.#notificationOf('raised', found);
  }

  #healed(memory: AlarmMemory, at: Moment): Notification | undefined {
    const code = toldCodes(memory).find(
      (each) => this.#seen.get(each)?.isUp === false && this.#isSettled(each, at),
    );
    const told = code && memory.told[code];
    if (!code || !told) return undefined;
    return { state: 'healed', key: code, level: told.level, detail: null, since: told.since };
  }

  #reminder(memory: AlarmMemory, at: Moment): Notification | undefined {
    const { repeatMs } = this.#rules;
    if (repeatMs === 0) return undefined;
    const found = this.#up.find(({ code }) => {
      const told = memory.told[code];
      return told !== undefined && at.nowMs - told.toldAtMs >= repeatMs;
    });
    return found && this.#notificationOf('reminder', found);
  }

  #notificationOf(state: 'raised' | 'reminder', finding: Finding): Notification {
    const { code, level, message, remedy, cause, count, detail, since } = finding;
    const seenMs = this.#seen.get(code)?.sinceMs;
    const seen = seenMs === undefined ? null : isoUtc(seenMs);
    return {
      state,
      key: code,
      level,
      detail,
      words: { message, remedy, cause, count },
      since: since ?? seen,
    };
  }

  #isSettled(code: FindingCode, { monotonicMs }: Moment): boolean {
    const seen = this.#seen.get(code);
    return seen !== undefined && (seen.hasLasted || monotonicMs - seen.sinceMonoMs >= this.#rules.settleMs);
  }
}

/**
 * Returns whether the receiver was notified of the finding; false if it was told of amber and the finding is red now.
 */
function isTold({ code, level }: Finding, { told }: AlarmMemory): boolean {
  const before = told[code];
  return before !== undefined && !(before.level === 'amber' && level === 'red');
}

function isSent(code: FindingCode, level: FindingLevel): boolean {
  const { sent } = FINDINGS[code];
  return sent === undefined || (sent === 'red' && level === 'red');
}

/** Returns the memory after `notification` was sent. */
export function afterSending(
  memory: AlarmMemory,
  { state, key, level, since }: Notification,
  at: Moment,
): AlarmMemory {
  const told = { ...memory.told };
  if (key !== 'alarms.daily-max') {
    if (state === 'healed') delete told[key];
    else told[key] = { since: told[key]?.since ?? since ?? '', toldAtMs: at.nowMs, level };
  }
  return { told, day: at.day, sent: sentOn(memory, at.day) + 1 };
}

function sentOn({ day, sent }: AlarmMemory, today: string): number {
  return day === today ? sent : 0;
}

function toldCodes({ told }: AlarmMemory): FindingCode[] {
  return (Object.keys(told) as FindingCode[]).filter((code) => Object.hasOwn(FINDINGS, code));
}

/** Name under which the heartbeat's state is stored beside the receivers' memories. */
const HEARTBEAT = 'alarms.heartbeat';

/** Stores the state of alarms in state.db. Every method may throw `storage-…`. */
export class AlarmRows {
  readonly #db: Database.Database;

  constructor(db: Database.Database) {
    this.#db = db;
  }

  memory(receiver: ReceiverName): AlarmMemory {
    return { ...NOTHING_SENT, ...(this.#read(receiver) as Partial<AlarmMemory> | undefined) };
  }

  remember(receiver: ReceiverName, memory: AlarmMemory): void {
    this.#write(receiver, memory);
  }

  /** Returns the heartbeat's state; undefined if none was ever sent. */
  heartbeat(): HeartbeatMemory | undefined {
    return this.#read(HEARTBEAT) as HeartbeatMemory | undefined;
  }

  rememberHeartbeat(memory: HeartbeatMemory): void {
    this.#write(HEARTBEAT, memory);
  }

  /** Deletes the heartbeat's state, because no heartbeat is sent any more. */
  forgetHeartbeat(): void {
    if (!this.heartbeat()) return;
    storing(() => removeFact(this.#db, `alarms.${HEARTBEAT}`));
  }

  /** Returns alarms that the daemon could not write into the mirror. */
  aside(): AlarmUp[] {
    const sql = 'SELECT key, message, level, raised_at AS raisedAt FROM alarms_aside ORDER BY key';
    return storing(() => sqlOf(this.#db).rows<AlarmUp>(sql));
  }

  setAside(alarms: readonly AlarmUp[]): void {
    if (alarms.length === 0 && this.aside().length === 0) return;
    const insert = 'INSERT INTO alarms_aside (key, message, level, raised_at) VALUES (?, ?, ?, ?)';
    const sql = sqlOf(this.#db);
    storing(() =>
      sql.transaction(() => {
        sql.run('DELETE FROM alarms_aside');
        for (const { key, message, level = null, raisedAt } of alarms) {
          sql.run(insert, key, message, level, raisedAt);
        }
      }),
    );
  }

  #read(name: string): unknown {
    const text = storing(() => factOf(this.#db, `alarms.${name}`));
    return text === undefined ? undefined : JSON.parse(text);
  }

  #write(name: string, value: object): void {
    storing(() => setFact(this.#db, `alarms.${name}`, JSON.stringify(value)));
  }
}
