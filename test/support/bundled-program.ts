import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { bundle } from '../../config/package/bundle.ts';
import { programVersion } from '../../src/app/installation.ts';
import { keepCompiledCode } from './compiled-code.ts';

/**
 * Bundles the program as in the package, for the processes that tests start: it starts in half the processor time of
 * the sources. Returns a function that removes it.
 */
export default async function bundledProgram(): Promise<() => void> {
  keepCompiledCode();
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-program-'));
  // Tests that run a command in their own process expect the daemon to be of the same version.
  const version = programVersion();
  await bundle({ root: path.resolve(import.meta.dirname, '../..'), directory, version });
  // Some tests start it as another Unix user.
  chmodSync(directory, 0o755);
  process.env.BUNDLED_TILLSYNC = path.join(directory, 'main.cjs');
  return () => rmSync(directory, { recursive: true, force: true });
}
