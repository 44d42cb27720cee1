import type Database from 'better-sqlite3';
import type { Alarms } from '../../domain/health/alarm.ts';
import type { Clock } from '../../domain/time/clock.ts';
import { namesOf } from '../lock-holders.ts';
import { walBytes } from '../settle-wal.ts';
import { findWalReaders } from './wal-readers.ts';

export const WAL_BYTES_MAX = 16 * 1024 * 1024;
const TEND_EVERY_MS = 1_000;

export interface WalCareOptions {
  path: string;
  clock: Clock;
  alarms: Alarms;
}

/**
 * Keeps the write-ahead log small. A reader that stays open keeps it from shrinking; the log then grows with
 * each write, and only ending that reader helps, so an alarm names it.
 */
export class WalCare {
  readonly #options: WalCareOptions;
  #tendedMs = Number.NEGATIVE_INFINITY;
  #alarmed = false;

  constructor(options: WalCareOptions) {
    this.#options = options;
  }

  /** Looks at most once a second; cheap while the log is small. */
  tend(db: Database.Database): void {
    const { clock, path, alarms } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#tendedMs < TEND_EVERY_MS) return;
    this.#tendedMs = nowMs;
    if (walBytes(path) > WAL_BYTES_MAX) tryToTruncate(db);
    const bytes = walBytes(path);
    if (bytes > WAL_BYTES_MAX) {
      this.#alarmed = true;
      alarms.raise('mirror.reader-holds-wal', sentence(path, bytes));
    } else if (this.#alarmed) {
      this.#alarmed = false;
      alarms.lower('mirror.reader-holds-wal');
    }
  }
}

/** What was committed stays committed, whatever becomes of the log. */
function tryToTruncate(db: Database.Database): void {
  try {
    truncateWal(db);
  } catch {
    // A failing disk shows itself at the next write, where somebody waits for the answer.
  }
}

/** At busy timeout 0: with any other, a reader would make this block every writer. */
export function truncateWal(db: Database.Database): void {
  if (walBytes(db.name) === 0) return;
  const timeoutMs = Number(db.pragma('busy_timeout', { simple: true }));
  db.pragma('busy_timeout = 0');
  try {
    db.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    db.pragma(`busy_timeout = ${timeoutMs}`);
  }
}

function sentence(path: string, bytes: number): string {
  const who = namesOf(findWalReaders(path)) || 'a program that could not be named';
  const mib = Math.round(bytes / 1024 / 1024 / 16) * 16;
  return `The mirror's log grew to about ${mib} MiB because ${who} keeps a read of it open; end that read.`;
}
