import type Database from 'better-sqlite3';
import type { AlarmKey, AlarmUp, FindingLevel } from '../core/alarm.ts';
import { sqlOf, storing } from '../db/sqlite.ts';
import { FINDINGS } from './findings.ts';
import type { HeartbeatMemory } from './heartbeat.ts';

/**
 * What a person is told:
 * - `raised`, `healed`: an alarm went up or is over, each once
 * - `reminder`: it is still up
 * - `muted`: the day's last message, which says that it is
 */
export interface AlarmNews {
  state: 'raised' | 'healed' | 'reminder' | 'muted';
  key: AlarmKey | 'alarms.daily-max';
  level: FindingLevel;
  detail: string | null;
  /** When the alarm went up; null for `muted`. */
  since: string | null;
}

/** Who is told of alarms. */
export type ReceiverName = 'command' | 'url';

/** What was told to one receiver, kept over restarts. */
export interface AlarmMemory {
  /** Alarms that were told and whose end was not told yet. */
  told: Readonly<Partial<Record<AlarmKey, { since: string; toldAtMs: number; level?: FindingLevel }>>>;
  /** Calendar day that `sent` counts. */
  day: string;
  sent: number;
}

export const NOTHING_TOLD: AlarmMemory = { told: {}, day: '', sent: 0 };

export interface AlarmRules {
  /** Milder alarms are not told. */
  level: FindingLevel;
  /** How long an alarm must be up, or over, before it is told. */
  settleMs: number;
  /** How often an alarm that stays up is told again; 0: never. */
  repeatMs: number;
  /** Messages in one calendar day. */
  dailyMax: number;
}

export interface Moment {
  nowMs: number;
  monotonicMs: number;
  /** Calendar day of the shop, such as `2026-11-21`. */
  day: string;
}

const ORDER = Object.keys(FINDINGS);

/** Decides what is told next. Alarms that flap within the settling time are not told. */
export class AlarmJudge {
  readonly #rules: AlarmRules;
  readonly #seen = new Map<AlarmKey, { isUp: boolean; sinceMonoMs: number }>();
  #up: readonly AlarmUp[] = [];

  constructor(rules: AlarmRules) {
    this.#rules = rules;
  }

  /** Takes in which alarms are up now. */
  look(up: readonly AlarmUp[], memory: AlarmMemory, monotonicMs: number): void {
    this.#up = [...up].sort((a, b) => ORDER.indexOf(a.key) - ORDER.indexOf(b.key));
    const keysUp = new Set(up.map(({ key }) => key));
    for (const key of new Set([...keysUp, ...this.#seen.keys(), ...toldKeys(memory)])) {
      const isUp = keysUp.has(key);
      // What follows from missing tokens has its time to go by itself once they are there.
      const isHidden = isUp && this.#isConsequence(key);
      if (isHidden || this.#seen.get(key)?.isUp !== isUp) {
        this.#seen.set(key, { isUp, sinceMonoMs: monotonicMs });
      }
    }
  }

  /** What to tell now, causes before what follows from them; undefined: nothing. */
  next(memory: AlarmMemory, at: Moment): AlarmNews | undefined {
    const news = this.#raised(memory, at) ?? this.#healed(memory, at) ?? this.#reminder(memory, at);
    const sent = sentOn(memory, at.day);
    if (!news || sent < this.#rules.dailyMax) return news;
    if (sent > this.#rules.dailyMax) return undefined;
    return { state: 'muted', key: 'alarms.daily-max', level: 'amber', detail: null, since: null };
  }

  #raised(memory: AlarmMemory, at: Moment): AlarmNews | undefined {
    const { level } = this.#rules;
    const found = this.#up.find(
      (alarm) =>
        !this.#isTold(alarm, memory) &&
        this.#isSettled(alarm.key, at) &&
        (level === 'amber' || levelOf(alarm) === 'red') &&
        !this.#isConsequence(alarm.key),
    );
    return found && newsOf('raised', found);
  }

  /** One that has become red since is told anew. */
  #isTold(alarm: AlarmUp, { told }: AlarmMemory): boolean {
    const before = told[alarm.key];
    return before !== undefined && !(before.level === 'amber' && levelOf(alarm) === 'red');
  }

  #healed(memory: AlarmMemory, at: Moment): AlarmNews | undefined {
    const key = toldKeys(memory).find(
      (each) => this.#seen.get(each)?.isUp === false && this.#isSettled(each, at),
    );
    const told = key && memory.told[key];
    if (!key || !told) return undefined;
    return { state: 'healed', key, level: told.level ?? levelOf({ key }), detail: null, since: told.since };
  }

  #reminder(memory: AlarmMemory, at: Moment): AlarmNews | undefined {
    const { repeatMs } = this.#rules;
    if (repeatMs === 0) return undefined;
    const found = this.#up.find(({ key }) => {
      const told = memory.told[key];
      return told !== undefined && at.nowMs - told.toldAtMs >= repeatMs;
    });
    return found && newsOf('reminder', found);
  }

  #isConsequence(key: AlarmKey): boolean {
    const hasNoTokens = this.#up.some((each) => each.key === 'auth.locked-out' || each.key === 'auth.none');
    return hasNoTokens && FINDINGS[key].hiddenBy?.includes('auth.none') === true;
  }

  #isSettled(key: AlarmKey, { monotonicMs }: Moment): boolean {
    const seen = this.#seen.get(key);
    return seen !== undefined && monotonicMs - seen.sinceMonoMs >= this.#rules.settleMs;
  }
}

/** The memory once `news` has been told. */
export function afterTelling(
  memory: AlarmMemory,
  { state, key, level, since }: AlarmNews,
  at: Moment,
): AlarmMemory {
  const told = { ...memory.told };
  if (key !== 'alarms.daily-max') {
    if (state === 'healed') delete told[key];
    else told[key] = { since: told[key]?.since ?? since ?? '', toldAtMs: at.nowMs, level };
  }
  return { told, day: at.day, sent: sentOn(memory, at.day) + 1 };
}

function newsOf(state: 'raised' | 'reminder', alarm: AlarmUp): AlarmNews {
  const { key, message, raisedAt } = alarm;
  return { state, key, level: levelOf(alarm), detail: message, since: raisedAt };
}

function sentOn({ day, sent }: AlarmMemory, today: string): number {
  return day === today ? sent : 0;
}

function levelOf({ key, level }: Pick<AlarmUp, 'key' | 'level'>): FindingLevel {
  return level ?? FINDINGS[key]?.level ?? 'amber';
}

function toldKeys({ told }: AlarmMemory): AlarmKey[] {
  return Object.keys(told) as AlarmKey[];
}

/** A row beside the memories, under a name that no receiver has. */
const HEARTBEAT = 'alarms.heartbeat';

/** What state.db knows of alarms. Every method may throw `storage-…`. */
export class AlarmRows {
  readonly #db: Database.Database;

  constructor(db: Database.Database) {
    this.#db = db;
  }

  memory(receiver: ReceiverName): AlarmMemory {
    return { ...NOTHING_TOLD, ...(this.#read(receiver) as Partial<AlarmMemory> | undefined) };
  }

  remember(receiver: ReceiverName, memory: AlarmMemory): void {
    this.#write(receiver, memory);
  }

  /** How the heartbeat fares; undefined: none was ever sent. */
  heartbeat(): HeartbeatMemory | undefined {
    return this.#read(HEARTBEAT) as HeartbeatMemory | undefined;
  }

  rememberHeartbeat(memory: HeartbeatMemory): void {
    this.#write(HEARTBEAT, memory);
  }

  /** The alarms that the daemon could not write into the mirror. */
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
    const sql = 'SELECT memory FROM alarm_memory WHERE receiver = ?';
    const text = storing(() => sqlOf(this.#db).value<string>(sql, name));
    return text === undefined ? undefined : JSON.parse(text);
  }

  #write(name: string, value: object): void {
    const sql = 'INSERT OR REPLACE INTO alarm_memory (receiver, memory) VALUES (?, ?)';
    storing(() => sqlOf(this.#db).run(sql, name, JSON.stringify(value)));
  }
}
