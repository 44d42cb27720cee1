import { existsSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { syncPath } from './sqlite.ts';

/**
 * Makes a directory and those above it. Node's own recursive way tries for ever where a file system refuses new
 * directories by saying that there is nothing (procfs does), so each step is tried once. Durable when this
 * returns: a power cut must not take it away with what was kept in it. Throws what the system says.
 */
export function makeDirectory(path: string, mode: number): void {
  if (existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeDirectory(parent, 0o755);
  mkdirSync(path, { mode });
  syncEntry(parent);
}

function syncEntry(parent: string): void {
  try {
    syncPath(parent);
  } catch (error) {
    // Who may write a directory need not be able to open it; the system then syncs it in its own time.
    if (!(error instanceof Error && 'code' in error && error.code === 'EACCES')) throw error;
  }
}
