/** A file or directory of the storage directory as the system shows it. */
export interface SeenFile {
  path: string;
  role: 'directory' | 'mirror' | 'state' | 'inbox-directory' | 'inbox' | 'log';
  /** Permission bits with setgid and the like: `st_mode & 0o7777`. */
  mode: number;
  uid: number;
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

/** What is wrong with owners and modes; `ownerUid` is whose the storage directory is. */
export function fileProblems(files: readonly SeenFile[], ownerUid: number): FileProblem[] {
  return files.flatMap((file) => {
    const { path, role, mode } = file;
    // In the inbox's directory the POS makes files too.
    const problems = role === 'inbox' ? [] : ownerProblems(file, ownerUid);
    if (role === 'log') return problems;
    const { mode: right, harmful, harm, needed, lack } = RULES[role];
    const remedy = `chmod ${octal(right)} ${path}`;
    const is = `has mode ${octal(mode)}`;
    if ((mode & harmful) !== 0) problems.push({ path, level: 'fail', problem: `${is}: ${harm}`, remedy });
    else if ((mode & needed) !== needed)
      problems.push({ path, level: 'warn', problem: `${is}, ${lack}`, remedy });
    return problems;
  });
}

function ownerProblems({ path, uid }: SeenFile, ownerUid: number): FileProblem[] {
  if (uid === ownerUid) return [];
  const problem = `belongs to user ${uid} and not, as its directory, to user ${ownerUid}, so tillsync cannot write it`;
  return [{ path, level: 'fail', problem, remedy: `chown ${ownerUid} ${path}` }];
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0');
}
