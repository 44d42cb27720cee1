import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import path from 'node:path';
import { bundle } from '../../config/package/bundle.ts';
import { programVersion } from '../../src/app/installation.ts';
import { keepCompiledCode } from './compiled-code.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

/**
 * Bundles the program as in the package, for the processes that tests start: it starts in half the processor time of
 * the sources. Returns a function that removes it.
 */
export default async function bundledProgram(): Promise<() => void> {
  keepCompiledCode();
  // Not below /tmp, in whose place some tests have an empty directory.
  const programs = path.join(ROOT, 'node_modules/.cache/programs');
  mkdirSync(programs, { recursive: true });
  const directory = mkdtempSync(`${programs}/`);
  // Tests that run a command in their own process expect the daemon to be of the same version.
  const version = programVersion();
  await bundle({ root: ROOT, directory, version });
  // Some tests start it as another Unix user.
  chmodSync(directory, 0o755);
  process.env.BUNDLED_TILLSYNC = path.join(directory, 'main.cjs');
  return () => rmSync(directory, { recursive: true, force: true });
}
