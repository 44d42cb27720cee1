/** A file or directory of the storage directory as the system shows it. */
export interface SeenFile {
  path: string;
  role: 'directory' | 'mirror' | 'state' | 'inbox-directory' | 'inbox' | 'log';
  /** Permission bits with setgid and the like: `st_mode & 0o7777`. */
  mode: number;
  uid: number;
  gid: number;
}

export interface FileProblem {
  path: string;
  level: 'warn' | 'fail';
  /** What follows from it, without the path. */
  problem: string;
  /** The command that mends it. */
  remedy: string;
}

interface ModeRule {
  mode: number;
  /** Bits whose presence does harm. */
  harmful: number;
  harm: string;
  /** Bits without which the POS of another user cannot do its part. */
  needed: number;
  lack: string;
}

const POS_CANNOT_READ = 'so a POS of another user cannot read the mirror';
const POS_CANNOT_HAND_OVER = 'so a POS of another user cannot hand over changes by SQL';

/** The modes of product's files, and why each is as it is. */
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

/** What is wrong with owners and modes; `files` begin with the directory. */
export function fileProblems(
  files: readonly SeenFile[],
  owner: RightOwner,
  nameOf: (uid: number) => string,
): FileProblem[] {
  return [...ownerProblem(files, owner, nameOf), ...modeProblems(files)];
}

function modeProblems(files: readonly SeenFile[]): FileProblem[] {
  return files.flatMap((file) => {
    const { path, role, mode } = file;
    const problems: FileProblem[] = [];
    if (role === 'log') return problems;
    const { mode: right, harmful, harm, needed, lack } = RULES[role];
    const remedy = `sudo chmod ${octal(right)} ${path}`;
    const is = `has mode ${octal(mode)}`;
    if ((mode & harmful) !== 0) problems.push({ path, level: 'fail', problem: `${is}: ${harm}`, remedy });
    else if ((mode & needed) !== needed)
      problems.push({ path, level: 'warn', problem: `${is}, ${lack}`, remedy });
    return problems;
  });
}

/** The user that has to own what is in the storage directory, by name. */
export interface RightOwner {
  uid: number;
  user: string;
  group: string;
  /** Such as `tillsync.service`; null: the owner of the directory, for no unit says who it is. */
  unit: string | null;
}

/** One problem for all that belongs to somebody else, since one command mends it. `files` begin with the directory. */
function ownerProblem(
  files: readonly SeenFile[],
  { uid, user, group, unit }: RightOwner,
  nameOf: (uid: number) => string,
): FileProblem[] {
  // In the inbox's directory the POS makes files too.
  const wrong = files.filter((file) => file.role !== 'inbox' && file.uid !== uid);
  const [first] = wrong;
  const [directory] = files;
  if (!first || !directory) return [];
  const others = [...new Set(wrong.map((file) => nameOf(file.uid)))].join(' and ');
  const more = wrong.length === 1 ? '' : ` and ${wrong.length - 1} more in it`;
  const why = unit === null ? `as the directory to ${user}` : `to ${user}, as whom ${unit} runs`;
  return [
    {
      path: first.path,
      level: 'fail',
      problem:
        `${more} belong${more === '' ? 's' : ''} to ${others} and not ${why}, so tillsync cannot write there`.trim(),
      remedy: `sudo chown -R -h ${user}:${group} ${directory.path}`,
    },
  ];
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0');
}
