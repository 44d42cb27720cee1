import { accessSync, constants, existsSync, lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { groupName, namedUser, serviceUserOf, unitOf, userName } from '../../app/installation.ts';
import { type StoragePaths, storagePaths, storageSpace } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import { roleOf } from '../../config/roles.ts';
import { hasCode, whenFree } from '../../core/errors.ts';
import type { Clock } from '../../core/time.ts';
import { openKeeper } from '../../db/mirror-connection.ts';
import { type DatabaseHealth, databaseHealth, walBytes } from '../../db/sqlite.ts';
import { findWalReaders, type LockHolder, namesOf, WAL_BYTES_MAX } from '../../db/wal.ts';
import { diskVerdict, formatBytes } from '../../health/facts.ts';
import { FINDINGS } from '../../health/findings.ts';
import { lookIntoInbox } from '../../outbox/inbox-process.ts';
import type { InboxHealth } from '../../outbox/inbox-protocol.ts';
import { type CheckOutcome, failed, hidden, skipped, warned, well } from './check.ts';

/** A file or directory of the storage directory with its attributes. */
export interface SeenFile {
  path: string;
  role: 'directory' | 'mirror' | 'state' | 'inbox-directory' | 'inbox' | 'log';
  /** Permission bits with setgid and the like: `st_mode & 0o7777`. */
  mode: number;
  uid: number;
  gid: number;
}

interface FileProblem {
  path: string;
  level: 'warn' | 'fail';
  /** The consequence, without the path. */
  problem: string;
  /** Command that mends the problem. */
  remedy: string;
}

interface ModeRule {
  mode: number;
  /** Bits whose presence does harm. */
  harmful: number;
  harm: string;
  /** Bits that the POS of another user needs. */
  needed: number;
  lack: string;
}

const POS_CANNOT_READ = 'so a POS of another user cannot read the mirror';
const POS_CANNOT_HAND_OVER = 'so a POS of another user cannot hand over changes by SQL';

/** The modes of the product's files, with the reasons. */
const RULES: Record<Exclude<SeenFile['role'], 'log'>, ModeRule> = {
  directory: {
    mode: 0o2750,
    harmful: 0o022,
    harm: 'others may write in it, and files that they make there can lock tillsync out',
    needed: 0o050,
    lack: POS_CANNOT_READ,
  },
  mirror: {
    mode: 0o640,
    harmful: 0o022,
    harm: 'others may write it, so a POS can lock or damage it',
    needed: 0o040,
    lack: POS_CANNOT_READ,
  },
  state: { mode: 0o600, harmful: 0o077, harm: 'others may read the tokens in it', needed: 0, lack: '' },
  'inbox-directory': {
    mode: 0o2770,
    harmful: 0o002,
    harm: 'everybody may write in it',
    needed: 0o070,
    lack: POS_CANNOT_HAND_OVER,
  },
  inbox: {
    mode: 0o660,
    harmful: 0o002,
    harm: 'everybody may write it',
    needed: 0o060,
    lack: POS_CANNOT_HAND_OVER,
  },
};

/** The user that must own the storage directory's content, by name. */
interface RightOwner {
  uid: number;
  user: string;
  group: string;
  /** The unit that names the user, such as `tillsync.service`; null if the user is the directory's owner. */
  unit: string | null;
}

/** Returns the faults of owners and modes; the first of `files` is the directory. */
export function fileProblems(
  files: readonly SeenFile[],
  owner: RightOwner,
  nameOf: (uid: number) => string,
): FileProblem[] {
  return [...ownerProblem(files, owner, nameOf), ...files.flatMap(modeProblem)];
}

function modeProblem({ path, role, mode }: SeenFile): FileProblem[] {
  if (role === 'log') return [];
  const { mode: right, harmful, harm, needed, lack } = RULES[role];
  const remedy = `sudo chmod ${octal(right)} ${path}`;
  const is = `has mode ${octal(mode)}`;
  if ((mode & harmful) !== 0) return [{ path, level: 'fail', problem: `${is}: ${harm}`, remedy }];
  if ((mode & needed) !== needed) return [{ path, level: 'warn', problem: `${is}, ${lack}`, remedy }];
  return [];
}

/** Returns one problem for all files of another owner, because one command fixes it. */
function ownerProblem(
  files: readonly SeenFile[],
  { uid, user, group, unit }: RightOwner,
  nameOf: (uid: number) => string,
): FileProblem[] {
  // In the inbox's directory the POS creates files too.
  const wrong = files.filter((file) => file.role !== 'inbox' && file.uid !== uid);
  const [first] = wrong;
  const [directory] = files;
  if (!first || !directory) return [];
  const others = [...new Set(wrong.map((file) => nameOf(file.uid)))].join(' and ');
  const belong = wrong.length === 1 ? 'belongs' : `and ${wrong.length - 1} more in it belong`;
  const why = unit === null ? `as the directory to ${user}` : `to ${user}, as whom ${unit} runs`;
  const problem = `${belong} to ${others} and not ${why}, so tillsync cannot write there`;
  const remedy = `sudo chown -R -h ${user}:${group} ${directory.path}`;
  return [{ path: first.path, level: 'fail', problem, remedy }];
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0');
}

/**
 * Restores the mirror's -wal and -shm, without which a POS of another user cannot read it while tillsync is stopped.
 * The last process to close the mirror deletes them if it may, for example root's sqlite3. Does so only if nothing
 * runs; returns undefined if none is missing. `running` is null if unknown.
 */
export function mendMirrorFiles(mirrorPath: string, running: boolean | null): CheckOutcome | undefined {
  if (!existsSync(mirrorPath)) return undefined;
  const missing = [`${mirrorPath}-wal`, `${mirrorPath}-shm`].filter((path) => !existsSync(path));
  if (missing.length === 0) return undefined;
  const [which, was] = [missing.join(' and '), missing.length > 1 ? 'were' : 'was'];
  const facts = { missing };
  if (running === null) {
    return hidden(`${which} ${was} deleted. You do not have permission to see whether tillsync runs.`, facts);
  }
  if (running) {
    const message = `${which} ${was} deleted while tillsync runs, so what it wrote last may be lost at its next stop.`;
    return failed(message, 'Restart the service: {restart}', facts);
  }
  try {
    openKeeper(mirrorPath).close();
  } catch {
    // The check below reports a missing file.
  }
  if (missing.some((path) => !existsSync(path))) {
    const message = `Without ${which} a POS of another user cannot read the mirror while tillsync is stopped.`;
    return failed(message, 'Start tillsync, or run this as root: both make them anew.', facts);
  }
  return warned(
    `${which} ${was} missing, so a POS of another user could not read the mirror; that was made anew just now.`,
    'Look into a stopped mirror with sqlite3 -readonly, and not as root: whoever closes last deletes these files.',
    { ...facts, madeAnew: true },
  );
}

interface FilesOptions {
  directory: string;
  /** `storage.group`; empty for the owner's group. */
  group: string;
  configFile: string;
  /** Whether the daemon runs; null if unknown. */
  running: boolean | null;
}

/** Checks owners and modes of the storage directory's content against the table of files. */
export function filesOutcome(options: FilesOptions): CheckOutcome {
  const mended = mendMirrorFiles(storagePaths(options.directory).mirror, options.running);
  const judged = judge(options);
  if (!mended || judged.level === 'fail') return judged;
  if (judged.level !== 'warn' || mended.level !== 'warn') return mended;
  return warned(`${judged.message} ${mended.message}`, `${judged.remedy}. ${mended.remedy}`, {
    ...judged.facts,
    ...mended.facts,
  });
}

function judge(options: FilesOptions): CheckOutcome {
  const { directory } = options;
  const storage = see(directory, 'directory');
  if (storage === 'hidden') return hidden(`You do not have permission to see ${directory}.`, { directory });
  if (!storage) {
    return failed(
      `There is no storage directory ${directory} yet.`,
      'Start tillsync, which makes it, or correct storage.directory in the configuration.',
      { directory },
    );
  }
  const { mirror, state, inbox } = storagePaths(directory);
  const seen = [
    storage,
    see(mirror, 'mirror'),
    see(`${mirror}-wal`, 'log'),
    see(`${mirror}-shm`, 'log'),
    see(state, 'state'),
    see(`${state}-wal`, 'log'),
    see(`${state}-shm`, 'log'),
    see(dirname(inbox), 'inbox-directory'),
    see(inbox, 'inbox'),
  ];
  const files = seen.filter((file) => file !== undefined && file !== 'hidden');
  const problems = fileProblems(files, rightOwner(storage, options), userName);
  const told = files.map(({ path, mode, uid }) => ({ path, mode: octal(mode), uid }));
  const facts = { directory, files: told, problems };
  if (problems.length === 0) {
    return seen.includes('hidden')
      ? hidden(`You do not have permission to see the files in ${directory}.`, facts)
      : well(`Owners and modes in ${directory} are right.`, facts);
  }
  const say = problems.some(({ level }) => level === 'fail') ? failed : warned;
  const message = problems.map(({ path, problem }) => `${path} ${problem}.`).join(' ');
  return say(message, problems.map(({ remedy }) => remedy).join(' && '), facts);
}

/** Returns the user of the unit that reads the configuration; without a unit, the directory's owner. */
function rightOwner({ uid, gid }: SeenFile, { group, configFile }: FilesOptions): RightOwner {
  const service = serviceUserOf(configFile);
  const user = service ?? namedUser(String(uid)) ?? { uid, gid, name: null };
  return {
    uid: user.uid,
    user: user.name ?? String(user.uid),
    group: group || groupName(user.gid),
    unit: service ? unitOf(configFile) : null,
  };
}

/** Returns `hidden` if this user may not see it. */
function see(path: string, role: SeenFile['role']): SeenFile | 'hidden' | undefined {
  try {
    const { mode, uid, gid } = statSync(path);
    return { path, role, mode: mode & 0o7777, uid, gid };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    if (code === 'EACCES') return 'hidden';
    throw error;
  }
}

/** SQLite reports a disk that is briefly unreadable as damage, too. */
const LOOK_AGAIN =
  'A failing disk looks the same: see to it first (dmesg), and run doctor again. If it stays: ';
const STATE_AWAY = `${LOOK_AGAIN}stop tillsync, move state.db with its -wal and -shm away, `;

/**
 * Returns what to do about a damaged file. state.db holds the tokens, a hub's keys and branches, and a branch's key.
 */
function makesItAnew(kind: keyof StoragePaths, config: Pick<Config, 'link' | 'hub'>): string {
  if (kind === 'mirror') {
    return `${LOOK_AGAIN}stop tillsync, move mirror.db with its -wal and -shm away, and start it: it reads orders and catalogue anew.`;
  }
  if (kind === 'inbox') {
    return 'Nothing to do: a running tillsync moves it away and makes a new one. Hand over what the POS wrote last again.';
  }
  switch (roleOf(config)) {
    case 'store':
      return `${STATE_AWAY}start it and hand in new tokens with: {tillsync} auth set`;
    case 'hub':
      return `${STATE_AWAY}and restore the last backup, which has the branches: {tillsync} restore FILE. Then write the configuration of the nats-server ({tillsync} hub server-config), restart the nats-server (sudo systemctl restart tillsync-nats), start tillsync ({start}), and hand in new tokens: {tillsync} auth set. Without a backup leave the restore out, and in the end invite each branch again: {tillsync} branch invite NAME`;
    case 'branch':
      return `${STATE_AWAY}have the hub invite this branch again (there: sudo tillsync branch invite ${config.link.branch}), join with the line that it prints ({tillsync} init --join -), and start tillsync: {start}`;
  }
}

/** Returns an outcome with the reason why this user may not read the file; undefined if the user may. */
export function lockedAway(path: string): CheckOutcome | undefined {
  try {
    accessSync(path, constants.R_OK);
    return undefined;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code !== 'EACCES' && code !== 'EPERM') return undefined;
    return hidden(`You do not have permission to read ${path}.`, { path });
  }
}

/** Checks that a database is sound and of this version. */
export async function databaseOutcome(
  kind: keyof StoragePaths,
  config: Pick<Config, 'storage' | 'link' | 'hub'>,
  clock: Clock,
  signal: AbortSignal,
): Promise<CheckOutcome> {
  const path = storagePaths(config.storage.directory)[kind];
  const away = lockedAway(path);
  if (away) return away;
  if (!lstatSync(path, { throwIfNoEntry: false })) {
    return skipped(`There is no ${path} yet.`, 'Start tillsync, which makes it.', { path });
  }
  let health: DatabaseHealth | InboxHealth;
  try {
    health =
      kind === 'inbox'
        ? await lookIntoInbox({ path, clock, signal }, (ask) => ask({ do: 'health' }))
        : await whenFree(clock, () => databaseHealth(path, kind));
  } catch (error) {
    if (!hasCode(error, 'storage-corrupt')) throw error;
    return failed(error.message, makesItAnew(kind, config), { path });
  }
  const { bytes, damage, readThrough } = health;
  const facts = { path, ...health };
  if (damage !== null) {
    return failed(`${path} is damaged: ${damage}. It was left as it is.`, makesItAnew(kind, config), facts);
  }
  const { applied, known } = 'schema' in health ? health.schema : { applied: 0, known: 0 };
  if (applied > known) {
    const message = `${kind}.db was written by a newer tillsync, and this one leaves it alone.`;
    return failed(
      message,
      'Install the newer tillsync again, or give this one its files back: {tillsync} restore --before-upgrade',
      facts,
    );
  }
  if (applied < known) {
    const message = `${kind}.db is still as an older tillsync made it.`;
    return warned(message, 'Restart the service, which brings it up to date: {restart}', facts);
  }
  const sound = readThrough ? 'sound' : 'too large to be read through in a moment';
  return well(`${path}: ${formatBytes(bytes)}, ${sound}.`, facts);
}

export function diskOutcome(directory: string): CheckOutcome {
  const space = storageSpace(directory);
  if (!space) return skipped(`The system does not tell how much of the disk of ${directory} is free.`);
  const { code, message: free } = diskVerdict(space);
  if (space.unsafe !== undefined) {
    const { message, remedy } = FINDINGS['storage.filesystem'];
    return warned(`${message} It is on ${space.unsafe}. ${free}`, remedy, { ...space, directory });
  }
  if (code === null) return well(free, { ...space });
  const { level, message, remedy } = FINDINGS[code];
  const say = level === 'red' ? failed : warned;
  return say(`${message} ${free}`, remedy, { ...space, directory });
}

/** Short reads end within this time; a process that reads before and after it holds the log. */
const BETWEEN_LOOKS_MS = 300;

/**
 * Finds programs that keep a read of the mirror open, so that its log cannot shrink. `daemon` is the daemon's process
 * id, whose own reads do not count; undefined if unknown.
 */
export async function readersNow(
  mirrorPath: string,
  { clock, signal, daemon }: { clock: Clock; signal: AbortSignal; daemon: number | undefined },
): Promise<CheckOutcome> {
  const away = lockedAway(mirrorPath);
  if (away) return away;
  const before = new Set(findWalReaders(mirrorPath).map(({ pid }) => pid));
  await clock.sleep(BETWEEN_LOOKS_MS, signal);
  const held = findWalReaders(mirrorPath).filter(({ pid }) => before.has(pid) && pid !== daemon);
  return readersOutcome(held, walBytes(mirrorPath));
}

/** `held` are programs with an open read; `logBytes` is the size of -wal. */
export function readersOutcome(held: readonly LockHolder[], logBytes: number): CheckOutcome {
  const facts = { logBytes, logMaxBytes: WAL_BYTES_MAX, readers: held };
  const names = namesOf(held);
  const log = `write log: ${formatBytes(logBytes)}`;
  if (held.length === 0) return well(`No program is blocking the database (${log}).`, facts);
  if (logBytes <= WAL_BYTES_MAX) {
    const message = `Reading the database now: ${names} (${log}). That does no harm unless it takes long.`;
    return well(message, facts);
  }
  const { message, remedy } = FINDINGS['mirror.reader-holds-wal'];
  return warned(`${message} It is held by ${names} (${log}).`, remedy, facts);
}
