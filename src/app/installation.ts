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
import { type Installation, TillsyncError, typedAgain, typedWords } from '../core/errors.ts';

/** Of tillsync, from its package. */
export function programVersion(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return String((JSON.parse(text) as { version?: unknown }).version);
}

/** What the shop is called to people. */
export function shopName({ shop, alarms }: Pick<Config, 'shop' | 'alarms'>): string {
  return shop.name || alarms.name || hostname();
}

const DEFAULT_STORAGE = '/var/lib/tillsync';
/** Users below are the system's own, such as the one of a service: nobody types as one of them. */
const FIRST_PERSON_UID = 1000;

/** The unit of the package that serves a configuration file; null: none does. */
export function unitOf(configFile: string): string | null {
  const service = serviceOf(configFile);
  return service === undefined ? null : `${service}.service`;
}

/** How tillsync is called here with the configuration that `--config` (or the environment) names. */
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

/** Whether a person who types as this user has no right to a directory, or to where it will be made. */
function isOfAnother(directory: string): boolean {
  const own = process.geteuid?.();
  if (own === undefined) return false;
  const { uid } = nearestThere(resolve(directory)).stats;
  return uid !== own || (uid !== 0 && uid < FIRST_PERSON_UID);
}

/** The path, or the nearest above it that is there and may be looked at. */
function nearestThere(path: string): { at: string; stats: { uid: number; gid: number } } {
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    try {
      return { at, stats: statSync(at) };
    } catch {
      // The directory above it may be.
    }
  }
  return { at: '/', stats: statSync('/') };
}

/** A Unix user of this machine. */
export interface UnixUser {
  uid: number;
  gid: number;
  /** null: the machine has no name for the number. */
  name: string | null;
}

/** As the package makes it. */
const PACKAGED_USER = 'tillsync';
const TIMEOUT_MS = 5_000;

/**
 * The user that the service of a configuration file runs as: `User=` of its unit, or the package's own where systemd
 * does not tell. undefined where no unit serves the file, or the machine has no such user.
 */
export function serviceUserOf(configFile: string): UnixUser | undefined {
  const unit = unitOf(resolve(configFile));
  return unit === null ? undefined : namedUser(userOfUnit(unit) ?? PACKAGED_USER);
}

/** A user by name or number. */
export function namedUser(name: string): UnixUser | undefined {
  return users().find((user) => user.name === name || String(user.uid) === name);
}

/** Name of a user; its number where the machine has no name for it. */
export function userName(uid: number): string {
  return users().find((user) => user.uid === uid)?.name ?? String(uid);
}

/** Asked for once, while this is still the user who typed. */
const typedAs = process.getuid?.();

/** Who runs this command, as the audit names him: `cli ana`, `cli root (sudo by ana)`. */
export function commandOrigin({ SUDO_USER }: Environment): string {
  const user = typedAs === undefined ? 'unknown' : userName(typedAs);
  const isName = SUDO_USER !== undefined && /^[\w.@-]{1,64}\$?$/.test(SUDO_USER);
  return isName && SUDO_USER !== user ? `cli ${user} (sudo by ${SUDO_USER})` : `cli ${user}`;
}

/** Name of a group; its number where the machine has no name for it. */
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
    // A unit without User= runs as root.
    return /^User=(.+)$/m.exec(text)?.[1] ?? 'root';
  } catch {
    return undefined;
  }
}

/** Throws `storage-readonly` where this user may not look into the storage directory, or not write in it. */
export function requireRights(directory: string, wanted: 'read' | 'write'): void {
  const mode = constants.R_OK | constants.X_OK | (wanted === 'write' ? constants.W_OK : 0);
  allows(directory, mode, directory, wanted);
}

/** Whether there is a file that this user may read. Throws `storage-readonly` for one that he may not read. */
export function isReadable(path: string): boolean {
  return allows(path, constants.R_OK, path, 'read');
}

function allows(path: string, mode: number, named: string, wanted: 'read' | 'write'): boolean {
  try {
    accessSync(path, mode);
    return true;
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? cause.code : undefined;
    // What is not there is no matter of rights.
    if (code !== 'EACCES' && code !== 'EPERM') return false;
    throw new TillsyncError('storage-readonly', `You do not have permission to ${wanted} ${named}.`, {
      cause,
      hint: `Run: ${typedAgain()}`,
    });
  }
}

/**
 * What is in a storage directory belongs to the user of the service, who may put links and files there as he likes. So
 * root does nothing in it: a process of root that is to work there becomes its owner first.
 */
export interface StorageUserOptions {
  directory: string;
  /** The configuration file, whose unit says who the service runs as. */
  configFile: string;
  /** Whether files will be made there: the directory is made, too, for the user of the service. */
  writes: boolean;
}

/** Acts as the owner from now on, for good. Nothing happens unless this is root and the directory another's. */
export function becomeStorageUser(options: StorageUserOptions): void {
  const owner = ownerFor(options);
  if (owner === undefined) return;
  setGroups(owner);
  process.setgid?.(owner.gid);
  process.setuid?.(owner.uid);
}

/** The same, but single steps can still be done as root by `asRoot`. */
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

/**
 * Does one step as root where root acts as the owner of a storage directory, else as whoever this is. The step must
 * be over when it returns, for the whole process is root meanwhile; a program that it starts runs as root to its end.
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

/** Does one step as another user, which only root can; it must be over when it returns. */
export function asUser<T>(user: UnixUser, step: () => T): T {
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

/** Whether root acts as the owner of a storage directory just now. */
export function isActing(): boolean {
  return process.getuid?.() === 0 && process.geteuid?.() !== 0;
}

const MODE = 0o2750;
/** For a user without a name whose directory has root's group. */
const NO_GROUP = 65_534;

function ownerFor({ directory, configFile, writes }: StorageUserOptions): UnixUser | undefined {
  if (process.geteuid?.() !== 0) return undefined;
  // Read now: afterwards the configuration may be out of reach.
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
  // Nobody but root can have put anything into it.
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

/** Below a directory of root's, where nobody else can exchange what is made. */
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

/** A configuration file as its service finds it. */
export interface ServiceView {
  /** Such as `tillsync.service`. */
  unit: string;
  user: string;
  /** Whether that user can read the file; null: only root can try. */
  canRead: boolean | null;
  faults: ConfigFault[];
}

/** Tries the file as the user of the service that reads it; undefined where none does. */
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
