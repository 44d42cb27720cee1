import { existsSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';

/**
 * Maximum number of files in the cache, which is deleted if it has more. Each run adds all test files, because Vitest
 * imports them under new names.
 */
const COMPILED_FILES_MAX = 8_000;
/** Directory of the compiled code. */
export const COMPILED_CODE = path.resolve(import.meta.dirname, '../../node_modules/.cache/compiled');

/** Lets the tests and the processes that they start use the code that an earlier process compiled. */
export function keepCompiledCode(): void {
  if (
    existsSync(COMPILED_CODE) &&
    readdirSync(COMPILED_CODE, { recursive: true }).length > COMPILED_FILES_MAX
  ) {
    rmSync(COMPILED_CODE, { recursive: true, force: true });
  }
  process.env.NODE_COMPILE_CACHE ??= COMPILED_CODE;
}
