import type Database from 'better-sqlite3';
import type { AlarmKey } from '../core/alarm.ts';
import { storing } from '../db/sqlite.ts';
import { FINDING_SENTENCES, type FindingCode, type FindingLevel } from './finding.ts';
import { followsFromNoTokens } from './verdict.ts';

/** An alarm that is up. */
export interface AlarmUp {
  key: AlarmKey;
  /** The words of the part that raised it. */
  message: string;
  /** ISO 8601 UTC. */
  raisedAt: string;
}

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

/** What was told to one receiver, kept over restarts. */
export interface AlarmMemory {
  /** Alarms that were told and whose end was not told yet. */
  told: Readonly<Partial<Record<AlarmKey, { since: string; toldAtMs: number }>>>;
  /** Calendar day that `sent` counts. */
  day: string;
  sent: number;
}

export const NOTHING_TOLD: AlarmMemory = { told: {}, day: '', sent: 0 };

/** Where the memory of each receiver lives. Both may throw `storage-…`. */
export interface AlarmMemoryStore {
  read(receiver: string): AlarmMemory;
  write(receiver: string, memory: AlarmMemory): void;
}

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

const ORDER = Object.keys(FINDING_SENTENCES);

/** Decides what is told next. Alarms that flap within the settling time are not told. */
export class AlarmJudge {
  readonly #rules: AlarmRules;
  readonly #standing = new Map<AlarmKey, { isUp: boolean; sinceMonoMs: number }>();
  #up: readonly AlarmUp[] = [];

  constructor(rules: AlarmRules) {
    this.#rules = rules;
  }

  /** Takes in which alarms are up now. */
  look(up: readonly AlarmUp[], memory: AlarmMemory, monotonicMs: number): void {
    this.#up = [...up].sort((a, b) => ORDER.indexOf(a.key) - ORDER.indexOf(b.key));
    const keysUp = new Set(up.map(({ key }) => key));
    for (const key of new Set([...keysUp, ...this.#standing.keys(), ...toldKeys(memory)])) {
      const isUp = keysUp.has(key);
      // What follows from missing tokens has its time to go by itself once they are there.
      const isHidden = isUp && this.#isConsequence(key);
      if (isHidden || this.#standing.get(key)?.isUp !== isUp) {
        this.#standing.set(key, { isUp, sinceMonoMs: monotonicMs });
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
      ({ key }) =>
        memory.told[key] === undefined &&
        this.#isSettled(key, at) &&
        (level === 'amber' || levelOf(key) === 'red') &&
        !this.#isConsequence(key),
    );
    return found && newsOf('raised', found);
  }

  #healed(memory: AlarmMemory, at: Moment): AlarmNews | undefined {
    const key = toldKeys(memory).find(
      (each) => this.#standing.get(each)?.isUp === false && this.#isSettled(each, at),
    );
    const since = key && memory.told[key]?.since;
    return since === undefined || key === undefined
      ? undefined
      : { state: 'healed', key, level: levelOf(key), detail: null, since };
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
    return hasNoTokens && followsFromNoTokens(key);
  }

  #isSettled(key: AlarmKey, { monotonicMs }: Moment): boolean {
    const standing = this.#standing.get(key);
    return standing !== undefined && monotonicMs - standing.sinceMonoMs >= this.#rules.settleMs;
  }
}

/** The memory once `news` has been told. */
export function afterTelling(memory: AlarmMemory, { state, key, since }: AlarmNews, at: Moment): AlarmMemory {
  const told = { ...memory.told };
  if (key !== 'alarms.daily-max') {
    if (state === 'healed') delete told[key];
    else told[key] = { since: told[key]?.since ?? since ?? '', toldAtMs: at.nowMs };
  }
  return { told, day: at.day, sent: sentOn(memory, at.day) + 1 };
}

function newsOf(state: 'raised' | 'reminder', { key, message, raisedAt }: AlarmUp): AlarmNews {
  return { state, key, level: levelOf(key), detail: message, since: raisedAt };
}

function sentOn({ day, sent }: AlarmMemory, today: string): number {
  return day === today ? sent : 0;
}

function levelOf(key: FindingCode): FindingLevel {
  return FINDING_SENTENCES[key]?.level ?? 'amber';
}

function toldKeys({ told }: AlarmMemory): AlarmKey[] {
  return Object.keys(told) as AlarmKey[];
}

/** What became of a test message. */
export interface AlarmTestResult {
  receiver: 'command' | 'url';
  description: string;
  ok: boolean;
  /** Why it did not arrive; empty when it did. */
  message: string;
}

/** That the running daemon is to send a test message, since alarms come from it and from nobody else. */
export interface AlarmTestWish {
  /** Wall clock of whoever asks. */
  askedAtMs: number;
  /** null until the daemon has done it. */
  results: AlarmTestResult[] | null;
  /** Why it could not be tried; null: it was, or is not yet. */
  fault: string | null;
}

/** The newest wish, shared between the processes of one company. */
export interface AlarmTestWishes {
  read(): AlarmTestWish | undefined;
  write(wish: AlarmTestWish): void;
}

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
