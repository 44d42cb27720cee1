import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { TillsyncError } from '../core/errors.ts';
import { createSecret, GROUP_READS, giveOpenToGroup, groupId, syncDirectory } from '../core/files.ts';
import type { Log } from '../core/log.ts';

const KEY_BYTES = 24;
const MODE_BITS = 0o7777;

/** Returns a new API key, which needs no quotes in a shell and no escape in an address. */
export function newKey(): string {
  return randomBytes(KEY_BYTES).toString('base64url');
}

/** Returns the path of the file with the API key that the first start makes. Its group may read it. */
export function keyFile(directory: string): string {
  return join(directory, 'api-key');
}

/**
 * Returns the status page's address with the API key. A browser never sends the part behind `#`; the page takes the key
 * from there and keeps it.
 */
export function pageLink(url: string, key: string | undefined): string {
  return key === undefined ? `${url}/` : `${url}/#key=${encodeURIComponent(key)}`;
}

/** Returns the API key of the storage directory; undefined if there is none, or this user may not read it. */
export function storedKey(directory: string): string | undefined {
  try {
    return withKeyFile(keyFile(directory), readKey);
  } catch {
    return undefined;
  }
}

/**
 * Returns why the file of the API key cannot be used; undefined if it can, if there is none, or if this user may not
 * read it.
 */
export function keyFault(directory: string): string | undefined {
  const path = keyFile(directory);
  try {
    withKeyFile(path, (file) => keyIn(file, path));
    return undefined;
  } catch (error) {
    return error instanceof UnusableKeyFile ? error.why : undefined;
  }
}

/**
 * Returns the API key of the storage directory, and makes one at the first start. The file belongs to `group`
 * (`storage.group`); if the name is empty, it gets the group of new files in the directory. A file that more users
 * can read than its group is closed again. When this returns, a power cut leaves the file in place. Throws
 * `config-invalid` if the path is no usable file, or `storage-failed`.
 */
export function ensureKey(directory: string, group: string, log: Log): string {
  const path = keyFile(directory);
  const gid = group === '' ? undefined : groupId(group);
  try {
    for (;;) {
      const there = openedKey(path, gid, log);
      if (there !== undefined) {
        // A process that was killed may have left the name of the file unwritten.
        syncDirectory(directory);
        return there;
      }
      // Another process that starts at the same time may make the file first.
      createSecret(path, newKey(), gid);
    }
  } catch (cause) {
    if (cause instanceof TillsyncError) throw cause;
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw new TillsyncError('storage-failed', `The API key cannot be stored in ${path} (${code}).`, {
      cause,
    });
  }
}

/**
 * Returns the main API key: the one that was handed in, else that of the storage directory, with its file. A file of an
 * earlier start is then neither accepted nor changed. Throws as `ensureKey`.
 */
export function mainKey(
  { directory, group }: { directory: string; group: string },
  handedIn: string | undefined,
  log: Log,
): { apiKey: string; keyFile?: string } {
  // The configuration that was read has the key of the file, too.
  if (handedIn !== undefined && handedIn !== storedKey(directory)) return { apiKey: handedIn };
  return { apiKey: ensureKey(directory, group, log), keyFile: keyFile(directory) };
}

function openedKey(path: string, gid: number | undefined, log: Log): string | undefined {
  try {
    return withKeyFile(path, (file) => {
      const { mode, uid, gid: group } = fstatSync(file);
      if (uid !== process.geteuid?.() && uid !== 0) throw unusable(path, 'belongs to another user');
      const key = keyIn(file, path);
      if (gid !== undefined && group !== gid) giveOpenToGroup(gid, file, path);
      if ((mode & MODE_BITS & ~GROUP_READS) !== 0) {
        close(file, path);
        log.warn(
          { path },
          'other users could read the API key; its file is closed again. If one of them may have read it, delete the file and restart',
        );
      }
      return key;
    });
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw isSystemError(error, 'EACCES') ? unusable(path, 'cannot be read by the user of tillsync') : error;
  }
}

function close(file: number, path: string): void {
  try {
    fchmodSync(file, GROUP_READS);
  } catch {
    throw unusable(path, 'can be read by other users');
  }
}

function withKeyFile<T>(path: string, use: (file: number) => T): T {
  let file: number;
  try {
    // Does not wait for a writer if the path is a named pipe.
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    throw isSystemError(error, 'ELOOP') ? unusable(path, 'is a symbolic link') : error;
  }
  try {
    if (!fstatSync(file).isFile()) throw unusable(path, 'is no file');
    return use(file);
  } finally {
    closeSync(file);
  }
}

function readKey(file: number): string | undefined {
  return /^([\x21-\x7e]+)\r?\n?$/.exec(readFileSync(file, 'utf8'))?.[1];
}

/** Returns the key. Throws if the content is none. */
function keyIn(file: number, path: string): string {
  const key = readKey(file);
  if (key === undefined) throw unusable(path, 'has no key in one line of visible ASCII characters');
  return key;
}

class UnusableKeyFile extends TillsyncError {
  readonly why: string;

  constructor(path: string, why: string) {
    super('config-invalid', `${path} should have the API key, but it ${why}.`, {
      hint: `Delete it; the next start makes another one: sudo rm ${path}`,
    });
    this.why = why;
  }
}

function unusable(path: string, why: string): TillsyncError {
  return new UnusableKeyFile(path, why);
}

function isSystemError(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}
