import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { TestModule, Vitest } from 'vitest/node';

/** A failed test. The file `*` stands for an error outside all tests, after which all files are run again. */
export interface FailedTest {
  file: string;
  title: string;
}

const NO_FILE = '*';

/**
 * Writes a Vitest run's failed tests, one per line (`file`, tab, `title`), to the file in `TILLSYNC_FAILED`. `.ci/run`
 * then runs the test files in that list once more, with the list in `TILLSYNC_AGAIN`. Both variables are deleted, so
 * that processes that tests start do not inherit them.
 */
export class FailedTests {
  readonly #writeTo = take('TILLSYNC_FAILED');
  readonly #again = take('TILLSYNC_AGAIN');

  /** Limits the run to the files whose tests failed before. */
  narrow({ projects }: Vitest): void {
    if (this.#again === undefined) return;
    const files = filesToRunAgain(readFileSync(this.#again, 'utf8'));
    if (files.length === 0) return;
    for (const { config } of projects) config.include = files;
  }

  write(failed: readonly FailedTest[]): void {
    if (this.#writeTo === undefined || failed.length === 0) return;
    const lines = failed.map(({ file, title }) => `${file}\t${title.replaceAll(/\s+/g, ' ')}\n`);
    writeFileSync(this.#writeTo, lines.join(''));
  }
}

/** Returns the files to run again; an empty list, which means all files, if one of the failures belongs to no file. */
export function filesToRunAgain(text: string): string[] {
  const files = text
    .split('\n')
    .flatMap((line) => line.split('\t', 1))
    .filter(Boolean);
  return files.includes(NO_FILE) ? [] : [...new Set(files)];
}

/** Returns all failures, also those outside a test, such as while a file was loaded, in a hook, or between tests. */
export function failedTests(
  modules: readonly TestModule[],
  errors: readonly { message: string }[],
  root: string,
): FailedTest[] {
  const inFiles = modules
    .filter((module) => !module.ok())
    .flatMap((module) => {
      const file = path.relative(root, module.moduleId);
      const tests = [...module.children.allTests('failed')].map(({ fullName }) => ({
        file,
        title: fullName,
      }));
      return tests.length > 0 ? tests : [{ file, title: 'the file itself, or a hook' }];
    });
  return [...inFiles, ...errors.map(({ message }) => ({ file: NO_FILE, title: `no test: ${message}` }))];
}

function take(name: string): string | undefined {
  const value = process.env[name];
  delete process.env[name];
  return value || undefined;
}
