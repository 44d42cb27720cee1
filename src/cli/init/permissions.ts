import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { TillsyncError } from '../../domain/errors.ts';

/** Says before the first question that this user cannot write what a set-up writes. Throws `config-invalid`. */
export function refuseUnwritable(file: string, storageDirectory: string): void {
  for (const path of [dirname(file), storageDirectory]) {
    if (mayWrite(standing(path))) continue;
    throw new TillsyncError('config-invalid', `This user may not write in ${path}; nothing was changed.`, {
      hint: 'Run it as root: {tillsync} init. For a trial of your own: --config FILE --directory DIRECTORY.',
    });
  }
}

/** The path, or what is there of those above it. */
function standing(path: string): string {
  return existsSync(path) || dirname(path) === path ? path : standing(dirname(path));
}

function mayWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
