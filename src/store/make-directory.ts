import { existsSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Makes a directory and those above it. Node's own recursive way tries for ever where a file system refuses new
 * directories by saying that there is nothing (procfs does), so each step is tried once. Throws what the system says.
 */
export function makeDirectory(path: string, mode: number): void {
  if (existsSync(path)) return;
  const parent = dirname(path);
  if (parent !== path) makeDirectory(parent, 0o755);
  mkdirSync(path, { mode });
}
