import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { bundle } from '../../config/package/bundle.ts';
import { programVersion } from '../../src/app/installation.ts';
import { keepCompiledCode } from './compiled-code.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Bundles the program as in the package, because the processes that tests start take half the CPU time with the bundle.
 * Returns a function that deletes the bundle.
 */
export default async function bundledProgram(): Promise<() => void> {
  keepCompiledCode();
  // Not in /tmp, because some tests mount an empty directory there.
  const programs = path.join(ROOT, 'node_modules/.cache/programs');
  mkdirSync(programs, { recursive: true });
  const directory = mkdtempSync(`${programs}/`);
  // Tests that run a command in their own process expect the daemon to be of the same version.
  const version = programVersion();
  await bundle({ root: ROOT, directory, version });
  // Some tests start the bundle as another Unix user.
  chmodSync(directory, 0o755);
  process.env.BUNDLED_TILLSYNC = path.join(directory, 'main.cjs');
  return () => rmSync(directory, { recursive: true, force: true });
}
