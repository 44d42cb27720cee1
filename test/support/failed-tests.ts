import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { TestModule, Vitest } from 'vitest/node';

/** A test that did not pass; without a file: an error that belongs to none, for which the whole tier is run again. */
export interface FailedTest {
  file: string;
  title: string;
}

const NO_FILE = '*';

/**
 * The tests that failed in a run of Vitest, one a line (`file`, tab, `title`) in the file that `TILLSYNC_FAILED` names:
 * `.ci/run` runs their files once more, with `TILLSYNC_AGAIN` for the same file. Processes that tests start have neither.
 */
export class FailedTests {
  readonly #writeTo = take('TILLSYNC_FAILED');
  readonly #again = take('TILLSYNC_AGAIN');

  /** Leaves of the tier only the files whose tests failed before. */
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

/** None where one of them belongs to no file. */
export function filesToRunAgain(text: string): string[] {
  const files = text
    .split('\n')
    .flatMap((line) => line.split('\t', 1))
    .filter(Boolean);
  return files.includes(NO_FILE) ? [] : [...new Set(files)];
}

/** Also what failed outside of a test: while a file was read, in a hook, or between the tests. */
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
