import { execFile } from 'node:child_process';
import {
  closeSync,
  type Dirent,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
} from 'node:fs';
import { arch, freemem, loadavg, release, totalmem, uptime, version } from 'node:os';
import { basename, join, relative } from 'node:path';
import Database from 'better-sqlite3';
import { asRoot, programVersion } from '../../app/installation.ts';
import { storageSpace } from '../../app/storage.ts';
import type { Config } from '../../config/config-type.ts';
import type { ConfigFault } from '../../config/source.ts';
import { isoUtc } from '../../core/time.ts';
import { HIDDEN, orFault, type Section } from './redact.ts';

export interface ConfigSectionsOptions {
  file: string;
  config: Config | undefined;
  faults: readonly ConfigFault[];
  /** Names of the secrets that were handed in. */
  handedIn: readonly string[];
}

/** The configuration as it is in force, or all that is wrong with it. */
export function configSections({ file, config, faults, handedIn }: ConfigSectionsOptions): Section[] {
  return [
    {
      name: 'configuration.json',
      what: 'the configuration in force, its faults, and which secrets were handed in; addresses without what may be secret',
      mayNamePeople: false,
      make: () => ({
        document: {
          file,
          faults,
          handedIn: handedIn.map((name) => `${name}: yes`),
          inForce: config && plain(config),
        },
      }),
    },
  ];
}

/** Without user, password, query, or a part of a path that nobody would remember. */
export function plainUrl(text: string): string {
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  const user = url.username === '' && url.password === '' ? '' : `${HIDDEN}@`;
  const query = [...url.searchParams.keys()].map((key) => `${encodeURIComponent(key)}=${HIDDEN}`).join('&');
  return `${url.protocol}//${user}${url.host}${plainPath(url.pathname)}${query && `?${query}`}`;
}

function plainPath(path: string): string {
  return path
    .split('/')
    .map((part) => (/^(?=.*\d)(?=.*[A-Za-z])[\w.~%-]{12,}$/.test(part) ? HIDDEN : part))
    .join('/');
}

function plain(config: Config): unknown {
  return {
    ...config,
    platform: { ...config.platform, baseUrl: plainUrl(config.platform.baseUrl) },
    webhook: {
      ...config.webhook,
      path: plainPath(config.webhook.path),
      callbackUrl: plainUrl(config.webhook.callbackUrl),
    },
  };
}

const JOURNAL_LINES = 5_000;
const LOG_BYTES_MAX = 2 * 1024 * 1024;
const PROGRAM_TIMEOUT_MS = 10_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
const SHOWN =
  'LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,ActiveEnterTimestamp,InactiveEnterTimestamp,StatusText,MemoryCurrent,User,Group,FragmentPath,DropInPaths,UnitFileState';

/** The service and what it wrote. */
export function logSections(options: { unit: string; logFiles: readonly string[] }): Section[] {
  const { unit } = options;
  const tail = ['--unit', unit, '--lines', String(JOURNAL_LINES), '--no-pager', '--output', 'short-iso'];
  return [
    {
      name: 'service.txt',
      what: `the state of the systemd unit ${unit}`,
      mayNamePeople: false,
      isForeign: true,
      make: async () => ({
        text: await outputOf('systemctl', ['show', unit, '--no-pager', '--property', SHOWN]),
      }),
    },
    {
      name: 'journal.txt',
      what: `the last ${JOURNAL_LINES} lines that ${unit} wrote`,
      mayNamePeople: true,
      isForeign: true,
      make: async () => ({ text: await outputOf('journalctl', tail) }),
    },
    ...options.logFiles.map(
      (path, i): Section => ({
        name: `log-${i + 1}.txt`,
        what: `the end of ${basename(path)}`,
        mayNamePeople: true,
        isForeign: true,
        make: () => ({ text: asRoot(() => endOf(path)) }),
      }),
    ),
  ];
}

/** What a program says; also what it says when it fails, for that is why somebody looks. */
function outputOf(program: string, words: string[]): Promise<string> {
  return new Promise((resolve) => {
    const options = {
      timeout: PROGRAM_TIMEOUT_MS,
      maxBuffer: OUTPUT_BYTES_MAX,
      env: { PATH: process.env.PATH ?? '', LC_ALL: 'C' },
    };
    // Not everybody may read the journal.
    asRoot(() =>
      execFile(program, words, options, (error, stdout, stderr) => {
        const failed =
          error === null ? '' : `${program} failed: ${'code' in error ? error.code : 'unknown'}\n`;
        resolve(`${failed}${stderr}${stdout}`);
      }),
    );
  });
}

/** From the first whole line of the last part. */
function endOf(path: string): string {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const start = Math.max(0, size - LOG_BYTES_MAX);
    const end = Buffer.alloc(size - start);
    const bytes = readSync(file, end, 0, end.length, start);
    const text = end.toString('utf8', 0, bytes);
    return start === 0 ? text : text.slice(text.indexOf('\n') + 1);
  } finally {
    closeSync(file);
  }
}

const FILES_MAX = 1_000;
const DISTRIBUTION = '/etc/os-release';

/** Versions, the machine, and the files of the storage directory. */
export function systemSections({ directory }: { directory: string }): Section[] {
  return [
    {
      name: 'versions.json',
      what: 'versions of tillsync, Node, SQLite, kernel and distribution; memory and load',
      mayNamePeople: false,
      make: () => ({ document: versions() }),
    },
    {
      name: 'files.json',
      what: 'size, mode, owner and time of each file in the storage directory, and the room on the disk',
      mayNamePeople: true,
      make: () => ({ document: { directory, disk: storageSpace(directory), files: filesBelow(directory) } }),
    },
  ];
}

function versions(): unknown {
  const distribution = existsSync(DISTRIBUTION)
    ? (/^PRETTY_NAME="?(.*?)"?$/m.exec(readFileSync(DISTRIBUTION, 'utf8'))?.[1] ?? null)
    : null;
  return {
    tillsync: programVersion(),
    node: process.version,
    sqlite: orFault(sqliteVersion),
    kernel: `${release()} ${version()} ${arch()}`,
    distribution,
    user: { uid: process.getuid?.() ?? null, gid: process.getgid?.() ?? null },
    timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    uptimeSeconds: Math.round(uptime()),
    load: loadavg(),
    memory: { totalBytes: totalmem(), freeBytes: freemem() },
  };
}

function sqliteVersion(): unknown {
  const db = new Database(':memory:');
  try {
    return db.prepare('SELECT sqlite_version()').pluck().get();
  } finally {
    db.close();
  }
}

function filesBelow(directory: string): unknown {
  const found: unknown[] = [describe(directory, directory)];
  const look = (at: string) => {
    const entries = orFault(() => readdirSync(at, { withFileTypes: true }));
    if (!Array.isArray(entries)) {
      found.push({ name: relative(directory, at) || '.', ...entries });
      return;
    }
    for (const entry of entries as Dirent[]) {
      if (found.length >= FILES_MAX) return;
      const path = join(at, entry.name);
      found.push(describe(directory, path));
      if (entry.isDirectory()) look(path);
    }
  };
  look(directory);
  return found;
}

function describe(directory: string, path: string): unknown {
  return {
    name: relative(directory, path) || '.',
    ...orFault(() => {
      const { size, mode, uid, gid, mtimeMs } = lstatSync(path);
      return { bytes: size, mode: (mode & 0o7777).toString(8), uid, gid, changedAt: isoUtc(mtimeMs) };
    }),
  };
}
