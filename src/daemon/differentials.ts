import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import type { Config } from '../config/config-type.ts';
import type { Alarms } from '../core/alarm.ts';
import { asTillsyncError, hasCode, TillsyncError } from '../core/errors.ts';
import { stampOf } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import { beatWhile, repeat } from '../core/loop.ts';
import type { ProgramEnd } from '../core/program.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { toStorageError } from '../db/sqlite.ts';
import { differentialName, differentialStampMs, namesAt, type Reach } from '../support/backup-files.ts';
import type { OwnCommandEnd } from './own-command.ts';

/**
 * Time by which a differential backup reaches back before the start of the whole backup, because making a whole backup
 * takes some minutes.
 */
const OVERLAP_MS = 600_000;
/** Failures in a row after which an alarm is raised. */
const TRIES = 4;
/**
 * Output of the backup command. The file's name may differ from the requested one, because encryption adds an ending.
 */
const REPORT = z.object({ file: z.string() });
/** Mode of the directory, as for whole backups. */
const MODE = 0o700;

interface DifferentialLoopOptions {
  settings: Config['backup'];
  directory: string;
  label: string;
  /** Makes the calls to the directory. */
  reach: Reach;
  /** Returns the times of the whole backups among the names in the directory, oldest first. */
  wholeMs: (names: readonly string[]) => number[];
  /** Returns the state that `differentialState` reads from the mirror. */
  state: () => { notedMs: number | undefined; news: string };
  /** Makes a differential backup as the command `backup FILE --since TIME --json` does. */
  back: (file: string, since: string) => Promise<OwnCommandEnd>;
  /** Runs the program `backup.after` with a file. */
  after: (file: string) => Promise<ProgramEnd>;
  alarms: Alarms;
  clock: Clock;
  log: Log;
  beat: () => void;
}

/**
 * Makes a differential backup whenever something changed, at most every `backup.differential_every`, so that a machine
 * that fails loses only the newest acknowledgements.
 *
 * The file is named after the newest whole backup that the mirror records, which may not be finished, and its content
 * reaches back to the previous whole backup. So it can exist before the newest whole backup does, and is useful even if
 * that backup cannot be used.
 */
export class DifferentialLoop {
  readonly #o: DifferentialLoopOptions;
  /** State that the newest differential backup contains; undefined after a start. */
  #saved: string | undefined;
  #failures = 0;

  constructor(options: DifferentialLoopOptions) {
    this.#o = options;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { settings, clock, log, beat } = this.#o;
    const onError = (error: unknown) => log.warn({ err: error }, 'no differential backup could be made');
    await repeat(
      { act: () => this.look(), everyMs: settings.differentialEveryMs, onError, clock, beat },
      signal,
    );
  }

  /** Saves the changes and runs `backup.after`. A failure is retried at the next call. */
  async look(): Promise<void> {
    const { log, state, clock, beat } = this.#o;
    const { notedMs, news } = state();
    if (notedMs === undefined || news === this.#saved) return;
    try {
      await beatWhile(this.#save(notedMs), clock, beat);
      this.#saved = news;
      this.#tell(0);
    } catch (error) {
      if (hasCode(error, 'aborted')) return;
      const known = asTillsyncError(error);
      this.#tell(this.#failures + 1, known.message);
      log.warn({ err: known }, 'a differential backup failed; it is tried again');
    }
  }

  /** Raises the alarm after several failures in a row, and ends it after a success. */
  #tell(failures: number, message = ''): void {
    this.#failures = failures;
    this.#o.alarms.note('backup.differential', failures >= TRIES ? message : null);
  }

  async #save(notedMs: number): Promise<void> {
    const { directory, label, settings, reach, wholeMs, back, after } = this.#o;
    try {
      await reach(() => mkdir(directory, { recursive: true, mode: MODE }));
    } catch (error) {
      throw toStorageError(error, directory);
    }
    const names = await namesAt(directory, reach);
    const whole = wholeMs(names);
    const before = whole.filter((atMs) => atMs < notedMs).at(-1) ?? notedMs;
    const name = differentialName(label, stampOf(notedMs));
    const { exit, stdout, stderr } = await back(join(directory, name), isoUtc(before - OVERLAP_MS));
    if (exit !== 0) {
      const [why = ''] = stderr.trim().split('\n');
      const said = exit === null ? 'It took too long.' : why.replace(/^tillsync: /, '').slice(0, 500);
      throw new TillsyncError('storage-failed', `No differential backup was made. ${said}`);
    }
    const { file } = REPORT.parse(JSON.parse(stdout));
    const [oldestMs = 0] = whole;
    for (const each of names) {
      const atMs = differentialStampMs(each, label) ?? notedMs;
      if (atMs >= Math.min(oldestMs, notedMs)) continue;
      await reach(() => rm(join(directory, each), { force: true }));
    }
    if (settings.after.length === 0) return;
    const { ok, what, said } = await after(file);
    if (ok) return;
    const words = said === '' ? '' : ` It said: ${said.slice(-200)}`;
    throw new TillsyncError('storage-failed', `The backup was made, but backup.after ${what}.${words}`);
  }
}
