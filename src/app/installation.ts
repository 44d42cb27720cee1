import { execFileSync } from 'node:child_process';
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fchmodSync,
  fchownSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, resolve } from 'node:path';
import type { Config } from '../config/config-type.ts';
import { keyAt } from '../config/schema.ts';
import { serviceOf } from '../config/secrets.ts';
import {
  type ConfigFault,
  DEFAULT_CONFIG_FILE,
  type Environment,
  rawValue,
  readConfigFile,
} from '../config/source.ts';
import { type Installation, sameCommandWithSudo, TillsyncError, typedWords } from '../core/errors.ts';

/** Returns the version of tillsync, from package.json. */
export function programVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return String((JSON.parse(text) as { version?: unknown }).version);
}

/** Returns the User-Agent of every request, because gateways refuse requests without one. */
export function userAgent(): string {
  return `tillsync/${programVersion()}`;
}

/** Returns the shop's name for people: `shop.name`, else the machine's name. */
export function shopName({ shop }: Pick<Config, 'shop'>): string {
  return shop.name || hostname();
}

const DEFAULT_STORAGE = '/var/lib/tillsync';
/** Lowest user id of a person. Lower ids belong to the system, such as the service's user, who types no commands. */
const FIRST_PERSON_UID = 1000;

/** Returns the package's systemd unit for a configuration file; null if there is none. */
export function unitOf(configFile: string): string | null {
  const service = serviceOf(configFile);
  return service === undefined ? null : `${service}.service`;
}

/** Returns the facts from which messages build tillsync's commands as they must be typed on this machine. */
export function findInstallation(file: string | undefined, env: Environment): Installation {
  const raw = readConfigFile(file, env);
  const configFile = resolve(raw.file);
  const directory = rawValue(raw, env, keyAt('storage.directory')).value;
  const storage = typeof directory === 'string' ? directory : DEFAULT_STORAGE;
  const isCheckout = basename(process.argv[1] ?? '') === 'main.ts';
  return {
    program: isCheckout ? 'npm run -s tillsync --' : 'tillsync',
    needsSudo: isOfAnother(storage),
    storage,
    configFile: configFile === DEFAULT_CONFIG_FILE ? null : configFile,
    unit: unitOf(configFile),
  };
}

/**
 * Returns whether the directory, or the parent in which it will be created, belongs to another user or to a system
 * user.
 */
function isOfAnother(directory: string): boolean {
  const own = process.geteuid?.();
  if (own === undefined) return false;
  const { uid } = nearestThere(resolve(directory)).stats;
  return uid !== own || (uid !== 0 && uid < FIRST_PERSON_UID);
}

/** Returns the path itself, or its nearest parent that exists and is accessible. */
function nearestThere(path: string): { at: string; stats: { uid: number; gid: number } } {
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    try {
      return { at, stats: statSync(at) };
    } catch {
      // The path is missing or inaccessible; its parent may be accessible.
    }
  }
  return { at: '/', stats: statSync('/') };
}

/** A Unix user of this machine. */
interface UnixUser {
  uid: number;
  gid: number;
  /** Name of the user; null if the machine has no name for the id. */
  name: string | null;
}

/** Name of the user that the package creates for the service. */
const PACKAGED_USER = 'tillsync';
const TIMEOUT_MS = 5_000;

/**
 * Returns the user as which the service of a configuration file runs: `User=` of its unit, or the package's user if
 * systemd does not answer. Returns undefined if no unit uses the file, or the machine has no such user.
 */
export function serviceUserOf(configFile: string): UnixUser | undefined {
  const unit = unitOf(resolve(configFile));
  return unit === null ? undefined : namedUser(userOfUnit(unit) ?? PACKAGED_USER);
}

/** Returns the user with this name or id. */
export function namedUser(name: string): UnixUser | undefined {
  return users().find((user) => user.name === name || String(user.uid) === name);
}

/** Returns the user's name, or the id if the machine has no name for it. */
export function userName(uid: number): string {
  return users().find((user) => user.uid === uid)?.name ?? String(uid);
}

/** Id of the user who typed the command. It is read at the start, before the process changes its user. */
const typedAs = process.getuid?.();

/** Returns who runs this command, as written in the audit: `cli ana`, `cli root (sudo by ana)`. */
export function commandOrigin({ SUDO_USER }: Environment): string {
  const user = typedAs === undefined ? 'unknown' : userName(typedAs);
  const isName = SUDO_USER !== undefined && /^[\w.@-]{1,64}\$?$/.test(SUDO_USER);
  return isName && SUDO_USER !== user ? `cli ${user} (sudo by ${SUDO_USER})` : `cli ${user}`;
}

/** Returns the group's name, or the id if the machine has no name for it. */
export function groupName(gid: number): string {
  return entries('/etc/group').find(([, , id]) => Number(id) === gid)?.[0] ?? String(gid);
}

function users(): UnixUser[] {
  return entries('/etc/passwd').map(([name = '', , uid, gid]) => ({
    name,
    uid: Number(uid),
    gid: Number(gid),
  }));
}

function entries(file: string): string[][] {
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.map((line) => line.split(':')).filter((fields) => fields.length > 3);
}

function userOfUnit(unit: string): string | undefined {
  if (!existsSync('/run/systemd/system')) return undefined;
  try {
    const words = ['show', unit, '--property=LoadState,User'];
    const text = execFileSync('systemctl', words, {
      timeout: TIMEOUT_MS,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    if (!text.includes('LoadState=loaded')) return undefined;
    // A unit without `User=` runs as root.
    return /^User=(.+)$/m.exec(text)?.[1] ?? 'root';
  } catch {
    return undefined;
  }
}

/** Throws `storage-readonly` if this user may not read the storage directory, or may not write to it. */
export function requireRights(directory: string, wanted: 'read' | 'write'): void {
  const mode = constants.R_OK | constants.X_OK | (wanted === 'write' ? constants.W_OK : 0);
  allows(directory, mode, directory, wanted);
}

/** Returns whether the file exists. Throws `storage-readonly` if it exists but this user may not read it. */
export function isReadable(path: string): boolean {
  return allows(path, constants.R_OK, path, 'read');
}

function allows(path: string, mode: number, named: string, wanted: 'read' | 'write'): boolean {
  try {
    accessSync(path, mode);
    return true;
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    // A missing file is no fault of permissions.
    if (code !== 'EACCES' && code !== 'EPERM') return false;
    throw new TillsyncError('storage-readonly', `You do not have permission to ${wanted} ${named}.`, {
      cause,
      hint: `Run: ${sameCommandWithSudo()}`,
    });
  }
}

/**
 * Options of the functions that change the process's user from root to the owner of the storage directory. Root must
 * not write there, because the service's user owns the directory and may put links in it.
 */
interface StorageUserOptions {
  directory: string;
  /** Path of the configuration file, whose systemd unit names the service's user. */
  configFile: string;
  /** True if the command creates files there. A missing directory is then created for the service's user. */
  writes: boolean;
}

/**
 * Changes the process's user to the directory's owner for good. Does nothing if the process is not root, or if the
 * directory stays root's.
 */
export function becomeStorageUser(options: StorageUserOptions): void {
  const owner = ownerFor(options);
  if (owner === undefined) return;
  setGroups(owner);
  process.setgid?.(owner.gid);
  process.setuid?.(owner.uid);
}

/**
 * Acts as the directory's owner as `becomeStorageUser` does, but single steps can still run as root through `asRoot`.
 */
export function actAsStorageUser(options: StorageUserOptions): void {
  const owner = asRoot(() => ownerFor(options));
  if (process.getuid?.() !== 0) return;
  process.seteuid?.(0);
  process.setegid?.(0);
  if (owner === undefined) return;
  setGroups(owner);
  process.setegid?.(owner.gid);
  process.seteuid?.(owner.uid);
}

/** Runs steps in which root may act as another user, and is root again afterwards. */
export async function rootAfter<T>(steps: () => Promise<T>): Promise<T> {
  const groups = process.getgroups?.() ?? [];
  try {
    return await steps();
  } finally {
    if (isActing()) {
      process.seteuid?.(0);
      process.setegid?.(0);
      process.setgroups?.(groups);
    }
  }
}

/**
 * Runs one step as root if root acts as another user, else as the present user. The step must be synchronous, because
 * the whole process is root meanwhile. A program started in the step stays root.
 */
export function asRoot<T>(step: () => T): T {
  const { geteuid, getegid, seteuid, setegid } = process;
  if (!isActing() || !geteuid || !getegid || !seteuid || !setegid) return step();
  const [uid, gid] = [geteuid(), getegid()];
  seteuid(0);
  setegid(0);
  try {
    return step();
  } finally {
    setegid(gid);
    seteuid(uid);
  }
}

/** Runs one step as another user, which only root can do. The step must be synchronous. */
function asUser<T>(user: UnixUser, step: () => T): T {
  const groups = process.getgroups?.() ?? [];
  setGroups(user);
  process.setegid?.(user.gid);
  process.seteuid?.(user.uid);
  try {
    return step();
  } finally {
    process.seteuid?.(0);
    process.setegid?.(0);
    process.setgroups?.(groups);
  }
}

/** Returns whether root acts as the owner of a storage directory now. */
export function isActing(): boolean {
  return process.getuid?.() === 0 && process.geteuid?.() !== 0;
}

const MODE = 0o2750;
/**
 * Group `nogroup`. The process takes this group if its user id has no account and the directory's group is root's, because
 * it must not keep the group of root.
 */
const NO_GROUP = 65_534;

function ownerFor({ directory, configFile, writes }: StorageUserOptions): UnixUser | undefined {
  if (process.geteuid?.() !== 0) return undefined;
  // Read before the user changes, because the configuration may be inaccessible afterwards.
  typedWords();
  const path = resolve(directory);
  const { at, stats } = nearestThere(path);
  if (at === path && stats.uid !== 0) return owner(stats);
  const service = serviceUserOf(configFile);
  if (service === undefined) return stats.uid === 0 ? undefined : owner(stats);
  if (service.uid === 0) return undefined;
  if (at !== path) {
    if (writes && stats.uid === 0) makeFor(service, path);
    return service;
  }
  if (writes && readdirSync(path).length === 0) giveTo(service, path);
  else if (writes) throw ofRoot(path, service);
  // Only root can have put content into a directory that root owns, so root may read it without changing its user.
  else return undefined;
  return service;
}

function owner({ uid, gid }: { uid: number; gid: number }): UnixUser {
  return namedUser(String(uid)) ?? { uid, gid: gid === 0 ? NO_GROUP : gid, name: null };
}

function setGroups({ name, gid }: UnixUser): void {
  if (name === null) process.setgroups?.([gid]);
  else (process as { initgroups?: (user: string, gid: number) => void }).initgroups?.(name, gid);
}

/** Creates directories below a directory of root, where no other user can replace them. */
function makeFor(user: UnixUser, path: string): void {
  const above: string[] = [];
  for (let at = path; !existsSync(at); at = dirname(at)) above.unshift(at);
  for (const directory of above) mkdirSync(directory, { mode: 0o755 });
  giveTo(user, path);
}

function giveTo({ uid, gid }: UnixUser, path: string): void {
  const directory = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fchownSync(directory, uid, gid);
    fchmodSync(directory, MODE);
  } finally {
    closeSync(directory);
  }
}

function ofRoot(path: string, { name, uid, gid }: UnixUser): TillsyncError {
  const user = name ?? uid;
  return new TillsyncError(
    'storage-readonly',
    `${path} belongs to root, but the service runs as ${user} and could not write what is made there now. Nothing was changed.`,
    { hint: `Give it to the service first: sudo chown -R ${user}:${groupName(gid)} ${path}` },
  );
}

/** What is known about how the service uses a configuration file. */
export interface ServiceView {
  /** Name of the systemd unit, such as `tillsync.service`. */
  unit: string;
  user: string;
  /** Whether the service's user can read the file; null if the caller is not root and cannot find out. */
  canRead: boolean | null;
  faults: ConfigFault[];
}

/** Checks whether the service's user can read the configuration file. Returns undefined if no service uses the file. */
export function viewOfService(configFile: string): ServiceView | undefined {
  const file = resolve(configFile);
  const unit = unitOf(file);
  const user = serviceUserOf(file);
  if (unit === null || user === undefined) return undefined;
  const name = user.name ?? String(user.uid);
  const own = process.geteuid?.();
  const there = statSync(file, { throwIfNoEntry: false });
  const view: ServiceView = { unit, user: name, canRead: null, faults: [] };
  if (own === user.uid) return { ...view, canRead: opens(file) };
  if (own !== 0 || there === undefined) return view;
  if (user.uid === 0 || asUser(user, () => opens(file))) return { ...view, canRead: true };
  const mode = (there.mode & 0o7777).toString(8).padStart(4, '0');
  const is = `mode ${mode}, ${userName(there.uid)}:${groupName(there.gid)}`;
  const found = `a file that the service user ${name} cannot read (${is})`;
  const mended = `sudo chgrp ${groupName(user.gid)} ${file} && sudo chmod 0640 ${file}`;
  const fault = { origin: file, key: '', found, allowed: `one that it can read: ${mended}` };
  return { ...view, canRead: false, faults: [fault] };
}

function opens(file: string): boolean {
  try {
    closeSync(openSync(file, 'r'));
    return true;
  } catch {
    return false;
  }
}
