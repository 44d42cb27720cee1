import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { seededRandom } from '../support/fake-clock.ts';
import { fastRoot } from '../support/fast-files.ts';
import { type Mutant, mutantsOf } from './operators.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const HELP = `Puts small faults into the source, one after the other, and tells which of them no everyday test notices.

npm run test:mutants -- [--count N] [--seed N] [--only FOLDER] [--json FILE]

  --count N      how many, the same number from each folder of src/; 150 unless told
  --seed N       which; TILLSYNC_SEED unless told
  --only FOLDER  of one folder, such as outbox
  --json FILE    what became of each, one JSON document a line; those that are in it are not tried again

One takes from five seconds, where the tests of its folder notice it, to as long as the everyday tests. Exit codes: 0 nine
of ten were noticed, 3 fewer.
`;
/** The page runs in a browser alone, which no everyday test starts; migrations are never changed. */
const LEFT_OUT = /^src\/(page|db\/\w+\/migrations)\//;
const NOTICED_MIN = 0.9;
const LONGEST_MS = 600_000;

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '150' },
    seed: { type: 'string', default: process.env.TILLSYNC_SEED ?? '1' },
    only: { type: 'string' },
    json: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
if (values.help) process.stdout.write(HELP);
else process.exitCode = main();

interface Outcome extends Mutant {
  /** The test that failed first; null: none. */
  noticedBy: string | null;
}

function main(): number {
  const drawn = draw(Number(values.count), Number(values.seed), values.only);
  const known = readOutcomes();
  const place = mkdtempSync(path.join(fastRoot(), 'tillsync-mutants-'));
  try {
    copyCheckout(place);
    const tests = testsOf(place);
    const outcomes = drawn.map((mutant, i) => {
      const before = known.find((each) => isSame(each, mutant));
      const outcome = before ?? { ...mutant, noticedBy: tryOne(place, mutant, tests) };
      if (!before && values.json) writeFileSync(values.json, `${JSON.stringify(outcome)}\n`, { flag: 'a' });
      process.stdout.write(`${i + 1}/${drawn.length} ${sentenceOf(outcome)}\n`);
      return outcome;
    });
    const survivors = outcomes.filter(({ noticedBy }) => noticedBy === null);
    const noticed = outcomes.length - survivors.length;
    process.stdout.write(`\n${noticed} of ${outcomes.length} were noticed. Not noticed:\n`);
    for (const each of survivors) process.stdout.write(`${sentenceOf(each)}\n`);
    return noticed >= NOTICED_MIN * outcomes.length ? 0 : 3;
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
}

function sentenceOf({ file, line, operator, before, after, noticedBy }: Outcome): string {
  const change = `${before.trim()} → ${after.trim() || 'nothing'}`;
  return `${noticedBy === null ? 'NOT NOTICED' : 'noticed'} ${file}:${line} ${operator}: ${change}${noticedBy === null ? '' : ` (${noticedBy})`}`;
}

const isSame = (a: Mutant, b: Mutant) =>
  a.file === b.file && a.line === b.line && a.operator === b.operator && a.before === b.before;

function readOutcomes(): Outcome[] {
  try {
    const lines = readFileSync(values.json ?? '', 'utf8')
      .split('\n')
      .filter(Boolean);
    return lines.map((line) => JSON.parse(line) as Outcome);
  } catch {
    return [];
  }
}

/** As many from each folder, and from each of its files at most as many as any other has. */
function draw(count: number, seed: number, only: string | undefined): Mutant[] {
  const random = seededRandom(seed);
  const below = (max: number) => Math.floor(random.next() * max);
  const files = listFiles(ROOT, 'src').filter((file) => file.endsWith('.ts') && !LEFT_OUT.test(file));
  const folders = new Map<string, Mutant[][]>();
  for (const file of files) {
    const [, folder = ''] = file.split('/');
    if (only !== undefined && folder !== only) continue;
    const mutants = mutantsOf(file, readFileSync(path.join(ROOT, file), 'utf8'));
    if (mutants.length > 0) folders.set(folder, [...(folders.get(folder) ?? []), mutants]);
  }
  const drawn: Mutant[] = [];
  const open = [...folders.values()];
  while (drawn.length < count && open.length > 0) {
    for (const [at, ofFolder] of [...open.entries()].reverse()) {
      if (drawn.length >= count) break;
      const fileAt = below(ofFolder.length);
      const ofFile = ofFolder[fileAt] ?? [];
      const [mutant] = ofFile.splice(below(ofFile.length), 1);
      if (mutant) drawn.push(mutant);
      if (ofFile.length === 0) ofFolder.splice(fileAt, 1);
      if (ofFolder.length === 0) open.splice(at, 1);
    }
  }
  return drawn;
}

/** What git knows, so that nothing that was left lying about is tried. */
function copyCheckout(place: string): void {
  const { stdout } = spawnSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' });
  for (const file of stdout.split('\0').filter(Boolean)) {
    cpSync(path.join(ROOT, file), path.join(place, file), { recursive: true });
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(place, 'node_modules'));
}

/** Of each everyday test, which files of the checkout it reaches. */
function testsOf(place: string): Map<string, Set<string>> {
  const everyday = listFiles(place, 'test').filter(
    (file) => file.endsWith('.test.ts') && !/^test\/(integration|slow|faults|recipes|bench)\//.test(file),
  );
  const imports = new Map<string, string[]>();
  const importsOf = (file: string): string[] => {
    const before = imports.get(file);
    if (before) return before;
    const text = readFileSync(path.join(place, file), 'utf8');
    const found = [...text.matchAll(/(?:from|import\(|new URL\()\s*['"](\.[^'"]+\.ts)['"]/g)].map(
      ([, to = '']) => path.posix.join(path.posix.dirname(file), to),
    );
    imports.set(file, found);
    return found;
  };
  const reached = (test: string) => {
    const seen = new Set([test]);
    for (const file of seen) {
      try {
        for (const next of importsOf(file)) seen.add(next);
      } catch {
        // An address that is put together at run time.
      }
    }
    return seen;
  };
  return new Map(everyday.map((test) => [test, reached(test)]));
}

/** The name of the test that fails, or null. Those of the same folder are tried first. */
function tryOne(
  place: string,
  { file, line, after }: Mutant,
  tests: Map<string, Set<string>>,
): string | null {
  const target = path.join(place, file);
  const text = readFileSync(target, 'utf8');
  const lines = text.split('\n');
  lines[line - 1] = after;
  writeFileSync(target, lines.join('\n'));
  try {
    const related = [...tests].filter(([, reached]) => reached.has(file)).map(([test]) => test);
    const [, folder = ''] = file.split('/');
    const near = related.filter((test) => test.startsWith(`test/${folder}/`));
    const far = related.filter((test) => !near.includes(test));
    return firstFailure(place, near) ?? firstFailure(place, far);
  } finally {
    writeFileSync(target, text);
  }
}

function firstFailure(place: string, tests: readonly string[]): string | null {
  if (tests.length === 0) return null;
  const options = [
    '--bail',
    '1',
    '--tagsFilter',
    '!bulk',
    '--reporter',
    'json',
    '--outputFile',
    'outcome.json',
  ];
  const { status } = spawnSync(path.join(ROOT, 'node_modules/.bin/vitest'), ['run', ...options, ...tests], {
    cwd: place,
    timeout: LONGEST_MS,
    stdio: 'ignore',
  });
  if (status === 0) return null;
  try {
    const { testResults } = JSON.parse(readFileSync(path.join(place, 'outcome.json'), 'utf8')) as {
      testResults: { name: string; assertionResults: { status: string; fullName: string }[] }[];
    };
    for (const { name, assertionResults } of testResults) {
      const failed = assertionResults.find((each) => each.status === 'failed');
      if (failed) return `${path.relative(place, name)}: ${failed.fullName}`.slice(0, 150);
    }
  } catch {
    // It ended before it could say anything.
  }
  return 'the run ended early';
}

function listFiles(root: string, folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
    .sort();
}
