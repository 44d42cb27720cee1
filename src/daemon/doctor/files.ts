import { statSync } from 'node:fs';
import { dirname } from 'node:path';
import { storagePaths } from '../storage/storage-directory.ts';
import { type Check, failed, type Outcome, warned, well } from './check.ts';
import { fileProblems, type SeenFile } from './file-rules.ts';
import { mendMirrorFiles } from './mirror-files.ts';

/** Owners and modes of all that is in the storage directory, as the table of files promises them. */
export function filesCheck(directory: string, isRunning: () => Promise<boolean | null>): Check {
  return {
    id: 'storage.files',
    async run() {
      const { mirror: mirrorPath } = storagePaths(directory);
      const mended = mendMirrorFiles({ mirrorPath, running: await isRunning() });
      const judged = judge(directory);
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

function judge(directory: string): Outcome {
  const storage = see(directory, 'directory');
  if (!storage) {
    return failed(
      `There is no storage directory ${directory} yet.`,
      'Start tillsync, which makes it, or correct storage.directory in the configuration.',
      { directory },
    );
  }
  const { mirror, state, inbox } = storagePaths(directory);
  const files = [
    storage,
    see(mirror, 'mirror'),
    see(`${mirror}-wal`, 'log'),
    see(`${mirror}-shm`, 'log'),
    see(state, 'state'),
    see(`${state}-wal`, 'log'),
    see(`${state}-shm`, 'log'),
    see(dirname(inbox), 'inbox-directory'),
    see(inbox, 'inbox'),
  ].filter((file) => file !== undefined);
  const problems = fileProblems(files, storage.uid);
  const facts = { directory, files: files.map(toldFile), problems };
  const [first] = problems;
  if (!first) return well(`Owners and modes in ${directory} are right.`, facts);
  const message = problems.map(({ path, problem }) => `${path} ${problem}.`).join(' ');
  const remedy = `As root: ${problems.map((each) => each.remedy).join('; ')}`;
  return problems.some(({ level }) => level === 'fail')
    ? failed(message, remedy, facts)
    : warned(message, remedy, facts);
}

function toldFile({ path, mode, uid }: SeenFile) {
  return { path, mode: mode.toString(8).padStart(4, '0'), uid };
}

function see(path: string, role: SeenFile['role']): SeenFile | undefined {
  try {
    const { mode, uid } = statSync(path);
    return { path, role, mode: mode & 0o7777, uid };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EACCES') return undefined;
    throw error;
  }
}
