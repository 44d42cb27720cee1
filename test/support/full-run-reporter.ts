import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { SerializedError } from 'vitest';
import type { Reporter, TestModule, Vitest } from 'vitest/node';
import { MAY_BE_SKIPPED } from '../may-be-skipped.ts';
import { FailedTests, failedTests } from './failed-tests.ts';

const PACKAGES = path.resolve(import.meta.dirname, '../../.ci/packages');

interface Skipped {
  file: string;
  title: string;
}

/**
 * Prints the seed at a run's start and the skipped tests at its end. With `TILLSYNC_FULL=1`, as in `.ci/run`, a
 * skipped test that test/may-be-skipped.ts does not list fails the run. Records failed tests for `.ci/run`.
 */
export class FullRunReporter implements Reporter {
  #vitest: Vitest | undefined;
  readonly #failed = new FailedTests();

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
    this.#failed.narrow(vitest);
    const { TILLSYNC_SEED: seed, TILLSYNC_SLOW: slow } = process.env;
    vitest.logger.log(
      `TILLSYNC_SEED=${seed} repeats this run; time limits are those of a quiet machine × ${slow}`,
    );
  }

  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const vitest = this.#vitest;
    if (!vitest) return;
    const unexpected = this.#tellSkipped(vitest, modules);
    // A file with an unexpectedly skipped test is run again too, so that the second run also notices it.
    this.#failed.write([...failedTests(modules, errors, vitest.config.root), ...unexpected]);
  }

  /** Reports skipped tests; returns those that fail the run. */
  #tellSkipped(vitest: Vitest, modules: readonly TestModule[]): Skipped[] {
    // If tests are selected by their titles, the other tests are skipped on purpose.
    if (vitest.config.testNamePattern !== undefined) return [];
    const skipped = modules.flatMap((module) =>
      [...module.children.allTests('skipped')]
        .filter(({ tags }) => !isOfAnotherTier(tags, vitest.config.tagsFilter))
        .map(({ fullName }) => ({
          file: path.relative(vitest.config.root, module.moduleId),
          title: fullName,
        })),
    );
    const unexpected = skipped.filter((test) => !mayBeSkipped(test));
    const log = (line: string) => vitest.logger.log(line);
    log(
      `${skipped.length} tests skipped, ${unexpected.length} of them without a reason in test/may-be-skipped.ts`,
    );
    if (unexpected.length === 0) return [];
    for (const { file, title } of unexpected.slice(0, 50)) log(`  skipped: ${file} > ${title}`);
    if (process.geteuid?.() !== 0) log('This run is not by root; some tests need root.');
    const missing = missingPackages();
    if (missing.length > 0) log(`Missing here: apt-get install -y ${missing.join(' ')}`);
    if (process.env.TILLSYNC_FULL !== '1') return [];
    log('FAIL: not a full run, because of the skipped tests above.');
    process.exitCode = 1;
    return unexpected;
  }
}

/**
 * Whether `--tagsFilter` leaves a test to another test run. For example, `!bulk` leaves out tests with the tag `bulk`,
 * and `bulk` leaves out tests without it.
 */
export function isOfAnotherTier(tags: readonly string[], filters: readonly string[] = []): boolean {
  return filters.some((filter) =>
    filter.startsWith('!') ? tags.includes(filter.slice(1)) : !tags.includes(filter),
  );
}

export function mayBeSkipped({ file, title }: Skipped): boolean {
  return MAY_BE_SKIPPED.some((each) => each.file === file && each.title.test(title));
}

/** Returns the Debian packages of `.ci/packages` that are not installed here. */
function missingPackages(): string[] {
  const lines = readFileSync(PACKAGES, 'utf8').split('\n');
  const wanted = lines.filter((line) => /^[a-z]+:/.test(line)).flatMap((line) => line.split(/\s+/).slice(1));
  const names = [...new Set(wanted)].filter((name) => name !== '');
  // dpkg-query prints a line per package: the name, sometimes with an architecture, and the version if it is installed.
  const { stdout } = spawnSync('dpkg-query', ['-W', ...names], { encoding: 'utf8' });
  const installed = new Set(
    (stdout ?? '').split('\n').flatMap((line) => /^([^:\t]+).*\t./.exec(line)?.[1] ?? []),
  );
  return names.filter((name) => !installed.has(name));
}
