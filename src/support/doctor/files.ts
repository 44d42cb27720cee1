import { accessSync, constants, lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { groupName, namedUser, serviceUserOf, unitOf, userName } from '../../app/installation.ts';
import { type StoragePaths, storagePaths, storageSpace } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import { keyFault, keyFile, storedKey } from '../../config/key-file.ts';
import { roleOf } from '../../config/roles.ts';
import { hasCode } from '../../core/errors.ts';
import { whenFree } from '../../core/loop.ts';
import type { Clock } from '../../core/time.ts';
import { type DatabaseHealth, databaseHealth, walBytes } from '../../db/sqlite.ts';
import { findWalReaders } from '../../db/wal.ts';
import { diskVerdict, formatBytes } from '../../health/facts.ts';
import { FINDINGS } from '../../health/findings.ts';
import { lookIntoInbox } from '../../outbox/intake/inbox-process.ts';
import type { InboxHealth } from '../../outbox/intake/inbox-protocol.ts';
import { type CheckOutcome, failed, hidden, skipped, warned, well } from './check.ts';
import { type FileProblem, fileProblems, octal, type RightOwner, type SeenFile } from './file-modes.ts';
import { mendMirrorFiles, readersOutcome } from './mirror-files.ts';

interface FilesOptions {
  directory: string;
  /** `storage.group`; empty for the owner's group. */
  group: string;
  configFile: string;
  /** Main API key that tillsync accepts, as far as this user can read it. */
  apiKey: string | undefined;
  /** Whether the daemon runs; null if unknown. */
  running: boolean | null;
}

/** Restores missing -wal and -shm files of the mirror, and checks owners and modes of the storage directory's files. */
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
    see(keyFile(directory), 'api-key'),
  ];
  const files = seen.filter((file) => file !== undefined && file !== 'hidden');
  const problems = [
    ...fileProblems(files, rightOwner(storage, options), userName),
    ...contentProblem(options),
  ];
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

/** Returns a problem if the file of the API key cannot be used, or has a key that tillsync does not accept. */
function contentProblem({ directory, apiKey }: FilesOptions): FileProblem[] {
  const path = keyFile(directory);
  const remedy = `sudo rm ${path}`;
  const fault = keyFault(directory);
  const stored = storedKey(directory);
  if (fault !== undefined) {
    const level = apiKey === undefined ? 'fail' : 'warn';
    return [{ path, level, problem: `should have the API key, but it ${fault}`, remedy }];
  }
  if (stored === undefined || stored === apiKey) return [];
  const problem =
    'has a key that tillsync does not accept, because another one is configured as local-api-key';
  return [{ path, level: 'warn', problem, remedy }];
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

/** Returns a file's attributes; `hidden` if this user may not see them, undefined if there is no file. */
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
    return warned(`${message} File system: ${space.unsafe}. ${free}`, remedy, { ...space, directory });
  }
  if (code === null) return well(free, { ...space });
  const { level, message, remedy } = FINDINGS[code];
  const say = level === 'red' ? failed : warned;
  return say(`${message} ${free}`, remedy, { ...space, directory });
}

/**
 * Pause between two checks for readers. Short reads end within it, so a process found by both checks keeps a read open.
 */
const BETWEEN_LOOKS_MS = 300;

/**
 * Finds programs that keep a read of the mirror open, so that its log cannot shrink. `daemon` is the process id of the
 * daemon, whose own reads are ignored; undefined if unknown.
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
