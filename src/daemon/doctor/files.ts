import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { unitOf } from '../installation.ts';
import { groupName, namedUser, serviceUserOf, userName } from '../service/service-user.ts';
import { storagePaths } from '../storage/storage-directory.ts';
import { type Check, failed, hidden, type Outcome, warned, well } from './check.ts';
import { fileProblems, type RightOwner, type SeenFile } from './file-rules.ts';
import { mendMirrorFiles } from './mirror-files.ts';

/** Owners and modes of all that is in the storage directory, as the table of files promises them. */
export function filesCheck(options: {
  directory: string;
  /** `storage.group`; empty: that of the owner. */
  group: string;
  configFile: string;
  isRunning: () => Promise<boolean | null>;
}): Check {
  const { directory, isRunning } = options;
  return {
    id: 'storage.files',
    async run() {
      const { mirror: mirrorPath } = storagePaths(directory);
      const mended = mendMirrorFiles({ mirrorPath, running: await isRunning() });
      const judged = judge(directory, options);
      if (!mended || judged.level === 'fail') return judged;
      return judged.level === 'warn' && mended.level === 'warn' ? both(judged, mended) : mended;
    },
  };
}

function both(one: Outcome, other: Outcome): Outcome {
  return {
    level: one.level,
    message: `${one.message} ${other.message}`,
    remedy: `${one.remedy}. ${other.remedy}`,
    facts: { ...one.facts, ...other.facts },
  };
}

function judge(directory: string, options: { group: string; configFile: string }): Outcome {
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
  const facts = { directory, files: files.map(toldFile), problems };
  const [first] = problems;
  if (!first && seen.includes('hidden')) {
    return hidden(`You do not have permission to see the files in ${directory}.`, facts);
  }
  if (!first) return well(`Owners and modes in ${directory} are right.`, facts);
  const message = problems.map(({ path, problem }) => `${path} ${problem}.`).join(' ');
  const remedy = problems.map((each) => each.remedy).join(' && ');
  return problems.some(({ level }) => level === 'fail')
    ? failed(message, remedy, facts)
    : warned(message, remedy, facts);
}

function toldFile({ path, mode, uid }: SeenFile) {
  return { path, mode: mode.toString(8).padStart(4, '0'), uid };
}

/** The user of the unit that reads the configuration; where no unit does, whose the directory is. */
function rightOwner({ uid, gid }: SeenFile, options: { group: string; configFile: string }): RightOwner {
  const service = serviceUserOf(options.configFile);
  const user = service ?? namedUser(String(uid)) ?? { uid, gid, name: null };
  return {
    uid: user.uid,
    user: user.name ?? String(user.uid),
    group: options.group || groupName(user.gid),
    unit: service ? unitOf(options.configFile) : null,
  };
}

/** `hidden`: this user may not see it. */
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
