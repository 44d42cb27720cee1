import { accessSync, constants } from 'node:fs';
import { TillsyncError } from '../../domain/errors.ts';
import { typedAgain } from '../../domain/installation.ts';

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
