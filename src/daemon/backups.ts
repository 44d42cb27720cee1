import { mkdir, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join, resolve } from 'node:path';
import * as z from 'zod';
import type { Services, ServicesOptions } from '../app/services.ts';
import type { Config } from '../config/config-type.ts';
import { serviceOf } from '../config/secrets.ts';
import type { FreshnessBoard } from '../core/alarm.ts';
import { asTillsyncError, failureCode, hasCode, TillsyncError } from '../core/errors.ts';
import { stampMs, stampOf } from '../core/files.ts';
import type { Log } from '../core/log.ts';
import { beatWhile, repeat } from '../core/loop.ts';
import { type ProgramEnd, runProgram } from '../core/program.ts';
import type { Clock } from '../core/time.ts';
import { toStorageError } from '../db/sqlite.ts';
import { formatBytes } from '../health/facts.ts';
import {
  BackupDisk,
  differentialState,
  handedOnMs,
  isLeftOver,
  namesAt,
  noteBackup,
  noteHandedOn,
  type Reach,
} from '../support/backup-files.ts';
import { DifferentialLoop } from './differentials.ts';
import type { NamedLoop } from './outgoing.ts';
import { type OwnCommandEnd, runOwnCommand } from './own-command.ts';

/** Directory of backups inside the storage directory, unless `backup.directory` names another. */
const BACKUPS = 'backups';
const LOOK_EVERY_MS = 60_000;
/** Delay after a start, because callbacks and polls are more urgent then. */
const AFTER_START_MS = 5 * 60_000;
const RETRY_AFTER_MS = 3_600_000;
/** Mode of the directory: only its owner may read it, because backups contain customers' names and phone numbers. */
const MODE = 0o700;

interface BackupLoopOptions {
  settings: Config['backup'];
  /** Path of the storage directory. */
  storage: string;
  /** Label of this shop in the files' names, because several shops may share a directory. Letters, digits and `-`. */
  label: string;
  /** Makes the calls to the directory of backups. */
  reach: Reach;
  /** Returns whether the last report about backups was a failure, also before a restart. */
  isFailing: () => boolean;
  /** Returns the time at which the last backup began, as recorded in the mirror; undefined if there was none. */
  notedMs: () => number | undefined;
  /** Records in the mirror that a backup of this time has begun. */
  note: (atMs: number) => Promise<void>;
  /** Time in the name of the last backup for which `backup.after` succeeded. */
  handedOnMs: () => number | undefined;
  noteHandedOn: (atMs: number) => Promise<void>;
  /** Makes a backup as the command `backup FILE --json` does. */
  back: (file: string) => Promise<OwnCommandEnd>;
  /** Runs the program `backup.after` with a file. */
  after: (file: string) => Promise<ProgramEnd>;
  freshness: FreshnessBoard;
  clock: Clock;
  log: Log;
  /** Reports to the watchdog that the loop runs. */
  beat: () => void;
}

const REPORT = z.object({ file: z.string(), bytes: z.number(), warnings: z.array(z.string()) });

/**
 * Makes a backup every `backup.every` and keeps the newest `backup.keep`. When the next one is due follows from the
 * files' names. So a deleted backup is made again, and a machine that is off at night makes its backup after the next
 * start.
 *
 * States: idle until a backup is due; making it; running `backup.after` until it succeeds, also after a restart.
 */
export class BackupLoop {
  readonly #o: BackupLoopOptions;
  readonly #directory: string;
  /** Finished backup for which `backup.after` must still run. */
  #made: { file: string; says: string } | undefined;
  /** Names of the backups when the directory last answered, the newest last; undefined before. */
  #seen: string[] | undefined;
  /** Monotonic time. */
  #notBeforeMs: number;

  constructor(options: BackupLoopOptions) {
    this.#o = options;
    this.#directory = directoryOf(options.settings, options.storage);
    this.#notBeforeMs = options.clock.monotonicMs() + AFTER_START_MS;
  }

  async run(signal: AbortSignal): Promise<void> {
    const { clock, log, beat } = this.#o;
    const onError = (error: unknown) => log.warn({ err: error }, 'the backups could not be looked at');
    await repeat({ act: () => this.look(), everyMs: LOOK_EVERY_MS, onError, clock, beat }, signal);
  }

  /** Makes the backup that is due, or runs `backup.after` for the finished one. A failure is retried after an hour. */
  async look(): Promise<void> {
    const { clock, freshness, isFailing, beat } = this.#o;
    if (clock.monotonicMs() < this.#notBeforeMs) return;
    if (this.#made === undefined) {
      let valid: string[];
      try {
        valid = this.#valid(await this.#names());
      } catch (error) {
        return this.#failed(error);
      }
      this.#made = this.#notHandedOn(valid);
      if (this.#made === undefined && !this.#isDue(valid)) {
        // The directory can be read again and no backup is due, so the failure is over.
        if (isFailing()) freshness.report('backup', 'ok', `${valid.at(-1)}.`);
        return;
      }
    }
    try {
      const made = this.#made ?? (await beatWhile(this.#make(), clock, beat));
      this.#made = made;
      await beatWhile(this.#handOn(made.file), clock, beat);
      freshness.ok('backup', made.says);
      this.#made = undefined;
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    const { clock, freshness, log } = this.#o;
    if (hasCode(error, 'aborted')) return;
    this.#notBeforeMs = clock.monotonicMs() + RETRY_AFTER_MS;
    const known = asTillsyncError(error);
    const newest = this.#seen?.at(-1);
    const kept = newest === undefined ? 'There is no backup yet.' : `The newest backup is ${newest}.`;
    const message = this.#seen === undefined ? known.message : `${known.message} ${kept}`;
    freshness.report('backup', 'failing', message, failureCode(known));
    log.warn({ err: known }, 'a backup failed; it is tried again in an hour');
  }

  /**
   * Returns the backups that count. A backup dated in the future was made while the clock was wrong. If there is a
   * recipient, an unencrypted backup does not count either, because it may not leave this machine.
   */
  #valid(names: readonly string[]): string[] {
    const { settings, clock } = this.#o;
    return names.filter(
      (name) => (settings.recipient === '' || name.endsWith('.age')) && madeAtMs(name) <= clock.nowMs(),
    );
  }

  /** Returns the newest backup if `backup.after` has not succeeded for it. */
  #notHandedOn(valid: readonly string[]): { file: string; says: string } | undefined {
    const { settings, handedOnMs } = this.#o;
    const name = valid.at(-1);
    if (settings.after.length === 0 || name === undefined || madeAtMs(name) === handedOnMs())
      return undefined;
    return { file: join(this.#directory, name), says: `${name}.` };
  }

  #isDue(valid: readonly string[]): boolean {
    const { clock, notedMs, settings } = this.#o;
    const sinceMs = clock.nowMs() - Math.max(0, ...valid.map(madeAtMs));
    // Without a recorded backup, no differential backup can be made, so a whole one is due at once.
    return notedMs() === undefined || sinceMs >= settings.everyMs;
  }

  async #make(): Promise<{ file: string; says: string }> {
    const { label, clock, back, note, settings, reach, log } = this.#o;
    const stamp = stampOf(clock.nowMs());
    try {
      await reach(() => mkdir(this.#directory, { recursive: true, mode: MODE }));
    } catch (error) {
      throw toStorageError(error, this.#directory);
    }
    await note(stampMs(stamp));
    const { exit, stdout, stderr } = await back(join(this.#directory, `tillsync-${label}-${stamp}.tar.gz`));
    const report = exit === 0 || exit === 3 ? REPORT.safeParse(documentOf(stdout)) : undefined;
    if (!report?.success) throw notMade(exit, stderr);
    const { file, bytes, warnings } = report.data;
    const name = basename(file);
    const others = (await this.#names()).filter((each) => each !== name);
    for (const old of others.slice(0, Math.max(0, others.length + 1 - settings.keep))) {
      await reach(() => rm(join(this.#directory, old), { force: true }));
    }
    await this.#removeUnfinished();
    log.info({ file, bytes }, 'a backup was made');
    return { file, says: [`${name}, ${formatBytes(bytes)}, read again and checked.`, ...warnings].join(' ') };
  }

  /** Deletes unfinished files of commands that were killed while they wrote this shop's backups. */
  async #removeUnfinished(): Promise<void> {
    const { label, reach } = this.#o;
    for (const name of await namesAt(this.#directory, reach)) {
      const stem = /^(.+\.part-)\d+$/.exec(name)?.[1];
      if (!stem?.startsWith(`tillsync-${label}-`) || !isLeftOver(name, stem)) continue;
      await reach(() => rm(join(this.#directory, name), { recursive: true, force: true }));
    }
  }

  async #handOn(file: string): Promise<void> {
    const { settings, after, noteHandedOn } = this.#o;
    if (settings.after.length === 0) return;
    const { ok, what, said } = await after(file);
    if (ok) return noteHandedOn(madeAtMs(basename(file)));
    const words = said === '' ? '' : ` It said: ${said.slice(-200)}`;
    throw new TillsyncError('storage-failed', `The backup was made, but backup.after ${what}.${words}`);
  }

  async #names(): Promise<string[]> {
    const { label, clock, reach } = this.#o;
    this.#seen = backupNames(await namesAt(this.#directory, reach), label, clock.nowMs());
    return this.#seen;
  }
}

/**
 * Returns those names that one shop's automatic backups have, oldest first. Backups with a time in the future come
 * first, because the clock was wrong when they were made.
 */
function backupNames(names: readonly string[], label: string, nowMs: number): string[] {
  const start = `tillsync-${label}-`;
  return names
    .filter((name) => name.startsWith(start) && STAMP.test(name.slice(start.length)))
    .sort((a, b) => Number(madeAtMs(b) > nowMs) - Number(madeAtMs(a) > nowMs) || (a < b ? -1 : 1));
}

function directoryOf({ directory }: Config['backup'], storage: string): string {
  return directory || join(storage, BACKUPS);
}

/** Returns the disk of a store's automatic backups, which all loops of a process share. */
export function backupDiskOf({ backup, storage }: Config, clock: Clock): BackupDisk {
  return new BackupDisk(directoryOf(backup, storage.directory), clock);
}

/** Returns the paths of this shop's automatic backups, oldest first. */
export async function backupsOf(config: Config, configFile: string, nowMs: number): Promise<string[]> {
  const directory = directoryOf(config.backup, config.storage.directory);
  const names = await namesAt(directory, (call) => call());
  return backupNames(names, labelOf(config, configFile), nowMs).map((name) => join(directory, name));
}

const STAMP = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\.tar\.gz(\.age)?$/;

function madeAtMs(name: string): number {
  return stampMs(/\d{8}T\d{6}Z(?=\.)/.exec(name)?.[0] ?? '');
}

function documentOf(stdout: string): unknown {
  try {
    return JSON.parse(stdout);
  } catch {
    return undefined;
  }
}

function notMade(exit: number | null, stderr: string): TillsyncError {
  const words =
    stderr
      .trim()
      .split('\n')
      .at(0)
      ?.replace(/^tillsync: /, '') ?? '';
  const why = exit === null ? 'It took too long.' : words.slice(0, 500);
  return new TillsyncError('storage-failed', `No backup was made. ${why}`);
}

const TAKES_AT_MOST_MS = 3_600_000;
const DIFFERENTIAL_TAKES_AT_MOST_MS = 300_000;

/**
 * Returns the loops for the backups that the configuration wants, because a loop that ended at once would be started
 * again for ever. There are none without a configuration file, because the backup command needs one.
 */
export function backupLoops(
  {
    config,
    configFile,
    clock,
    log,
  }: Pick<ServicesOptions, 'config' | 'clock' | 'log'> & { configFile?: string },
  { mirror }: Pick<Services, 'mirror'>,
  disk: BackupDisk,
): NamedLoop[] {
  if (configFile === undefined) return [];
  const label = labelOf(config, configFile);
  const settings = config.backup;
  const state = () => mirror.read(differentialState);
  const command = (words: string[], timeoutMs: number, signal: AbortSignal) =>
    runOwnCommand(['backup', ...words, '--json'], { configFile, timeoutMs, signal });
  const after = (file: string, timeoutMs: number, signal: AbortSignal) =>
    runProgram([...settings.after, file], { input: '', env: process.env, timeoutMs, signal });
  const whole: NamedLoop['run'] = (signal, beat) =>
    new BackupLoop({
      settings,
      storage: config.storage.directory,
      label,
      reach: (call) => disk.reach(call, signal),
      isFailing: () =>
        mirror.health.freshness().some(({ subject, state }) => subject === 'backup' && state === 'failing'),
      notedMs: () => state().notedMs,
      note: (atMs) => mirror.write((db) => noteBackup(db, atMs)),
      handedOnMs: () => mirror.read(handedOnMs),
      noteHandedOn: (atMs) => mirror.write((db) => noteHandedOn(db, atMs)),
      back: (file) => command([file], TAKES_AT_MOST_MS, signal),
      after: (file) => after(file, TAKES_AT_MOST_MS, signal),
      freshness: mirror.health,
      clock,
      log,
      beat,
    }).run(signal);
  const directory = directoryOf(settings, config.storage.directory);
  const differential: NamedLoop['run'] = (signal, beat) =>
    new DifferentialLoop({
      settings,
      directory,
      label,
      reach: (call) => disk.reach(call, signal),
      wholeMs: (names) => backupNames(names, label, clock.nowMs()).map(madeAtMs),
      state,
      back: (file, since) => command([file, '--since', since], DIFFERENTIAL_TAKES_AT_MOST_MS, signal),
      after: (file) => after(file, DIFFERENTIAL_TAKES_AT_MOST_MS, signal),
      alarms: mirror.health,
      clock,
      log,
      beat,
    }).run(signal);
  if (settings.everyMs === 0)
    mirror.health.report('backup', 'off', 'No backups are made: backup.every is 0s.');
  const hasDifferential = settings.everyMs > 0 && settings.differentialEveryMs > 0;
  if (!hasDifferential) mirror.health.note('backup.differential', null);
  return [
    ...(settings.everyMs > 0 ? [{ name: 'backup', run: whole }] : []),
    ...(hasDifferential ? [{ name: 'backup.differential', run: differential }] : []),
  ];
}

/**
 * Returns the label of a shop: the name of its branch, else of its machine. The name of the instance is put before it
 * if the service has one: `b1`, `second-till-7`.
 */
function labelOf({ link }: Pick<Config, 'link'>, configFile: string): string {
  const [, instance = ''] = (serviceOf(resolve(configFile)) ?? '').split('@');
  const words = [instance, link.branch || hostname()].filter((word) => word !== '').join('-');
  return words.toLowerCase().replace(/[^a-z0-9]+/g, '-');
}
