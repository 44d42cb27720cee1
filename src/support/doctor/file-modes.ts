/** A file or directory of the storage directory with its attributes. */
export interface SeenFile {
  path: string;
  role: 'directory' | 'mirror' | 'state' | 'inbox-directory' | 'inbox' | 'api-key' | 'log';
  /** Permission bits with setgid and the like: `st_mode & 0o7777`. */
  mode: number;
  uid: number;
  gid: number;
}

export interface FileProblem {
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
  /** Bits that a POS needs if it runs as another user. */
  needed: number;
  lack: string;
}

const POS_CANNOT_READ = 'so a POS of another user cannot read the mirror';

const POS_CANNOT_HAND_OVER = 'so a POS of another user cannot hand over changes by SQL';

/** The right modes of tillsync's files, and the harm that other modes do. */
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
  'api-key': {
    mode: 0o640,
    harmful: 0o027,
    harm: 'users outside its group can read it, or its group can change it',
    needed: 0o040,
    lack: 'so a POS of another user cannot read the API key',
  },
};

/** The user that must own the storage directory's content, by name. */
export interface RightOwner {
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
  return [...ownerProblem(files, owner, nameOf), ...files.flatMap(modeProblem), ...groupProblem(files)];
}

/** Returns a problem if other users than those of the mirror's group may read the API key. */
function groupProblem(files: readonly SeenFile[]): FileProblem[] {
  const directory = files.find(({ role }) => role === 'directory');
  const key = files.find(({ role }) => role === 'api-key');
  if (!directory || !key || key.gid === directory.gid) return [];
  const problem = 'belongs to another group than its directory, and that group can read the API key';
  const remedy = `sudo chgrp --reference=${directory.path} ${key.path}`;
  return [{ path: key.path, level: 'fail', problem, remedy }];
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

/** Returns at most one problem, for all files with a wrong owner, because one command fixes them all. */
function ownerProblem(
  files: readonly SeenFile[],
  { uid, user, group, unit }: RightOwner,
  nameOf: (uid: number) => string,
): FileProblem[] {
  // The inbox may belong to another user, because the POS creates files in its directory too.
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

export function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0');
}
