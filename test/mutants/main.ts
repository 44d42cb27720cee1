import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { seededRandom } from '../support/fake-clock.ts';
import { fastRoot } from '../support/fast-files.ts';
import { type Mutant, mutantsOf } from './operators.ts';
import type { Reached } from './reached.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const HELP = `Puts small faults into the source, one after the other, and tells which of them no everyday test notices.

npm run test:mutants -- [--count N] [--seed N] [--only FOLDER] [--json FILE]

  --count N      how many, the same number from each folder of src/; 150 unless told
  --seed N       which; TILLSYNC_SEED unless told
  --only FOLDER  of one folder, such as outbox
  --lanes N      how many side by side; 2 unless told
  --json FILE    what became of each, one JSON document a line; those that are in it are not tried again

The everyday tests run once first, to see which of them runs through the line of which fault: only those can notice it.
Then one takes from five seconds, where a quick test notices it, to as long as those tests. Exit codes: 0 nine of ten were
noticed, 3 fewer.
`;
/**
 * Sources that are not mutated: the page runs only in a browser, which no everyday test starts, and migrations are
 * never changed.
 */
const LEFT_OUT = /^src\/(page|db\/\w+\/migrations)\//;
const NOTICED_MIN = 0.9;
const LONGEST_MS = 600_000;
/** Longest total duration of a fault's quick tests, which run first because they already notice most faults. */
const QUICK_MS = 10_000;

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '150' },
    seed: { type: 'string', default: process.env.TILLSYNC_SEED ?? '1' },
    only: { type: 'string' },
    lanes: { type: 'string', default: '2' },
    json: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
if (values.help) process.stdout.write(HELP);
else process.exitCode = await main();

interface Outcome extends Mutant {
  /** The test that failed first; null if none. */
  noticedBy: string | null;
}

async function main(): Promise<number> {
  const drawn = draw(Number(values.count), Number(values.seed), values.only);
  const known = readOutcomes();
  const outcomes = drawn.flatMap((mutant) => known.find((each) => isSame(each, mutant)) ?? []);
  const open = drawn.filter((mutant) => !known.some((each) => isSame(each, mutant)));
  const place = mkdtempSync(path.join(fastRoot(), 'tillsync-mutants-'));
  try {
    const lanes = Array.from({ length: Number(values.lanes) }, (_, at) => path.join(place, String(at)));
    for (const lane of lanes) copyCheckout(lane);
    const [first = ''] = lanes;
    const testsOf = open.length === 0 ? () => [] : await findTests(first, open);
    const waiting = [...open.entries()];
    const work = async (lane: string) => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const [at, mutant] = next;
        const outcome = { ...mutant, noticedBy: await tryOne(lane, mutant, testsOf(at)) };
        outcomes.push(outcome);
        if (values.json) writeFileSync(values.json, `${JSON.stringify(outcome)}\n`, { flag: 'a' });
        process.stdout.write(`${outcomes.length}/${drawn.length} ${sentenceOf(outcome)}\n`);
      }
    };
    await Promise.all(lanes.map(work));
  } finally {
    rmSync(place, { recursive: true, force: true });
  }
  const survivors = outcomes.filter(({ noticedBy }) => noticedBy === null);
  const noticed = outcomes.length - survivors.length;
  process.stdout.write(`\n${noticed} of ${outcomes.length} were noticed. Not noticed:\n`);
  for (const each of survivors) process.stdout.write(`${sentenceOf(each)}\n`);
  return noticed >= NOTICED_MIN * outcomes.length ? 0 : 3;
}

function sentenceOf({ file, line, operator, before, after, noticedBy }: Outcome): string {
  const change = `${before.trim()} → ${after.trim() || 'nothing'}`;
  return `${noticedBy === null ? 'NOT NOTICED' : 'noticed'} ${file}:${line} ${operator}: ${change}${noticedBy === null ? '' : ` (${noticedBy})`}`;
}

function isSame(a: Mutant, b: Mutant): boolean {
  return a.file === b.file && a.line === b.line && a.operator === b.operator && a.before === b.before;
}

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

/** Draws `count` faults, the same number from each folder of src/ and evenly from its files. */
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

/** Copies only the files that git tracks, so that leftover files are not tested. */
function copyCheckout(place: string): void {
  const { stdout } = spawnSync('git', ['ls-files', '-z'], { cwd: ROOT, encoding: 'utf8' });
  for (const file of stdout.split('\0').filter(Boolean)) {
    cpSync(path.join(ROOT, file), path.join(place, file), { recursive: true });
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(place, 'node_modules'));
}

/**
 * Runs the everyday tests once. Returns a function that gives the tests that run through a fault, as two lists to be
 * run one after the other: the quick tests, then the rest.
 */
async function findTests(
  place: string,
  mutants: readonly Mutant[],
): Promise<(at: number) => readonly string[][]> {
  const noteTo = path.join(place, 'reached.jsonl');
  const asked = path.join(place, 'lines.json');
  writeFileSync(asked, JSON.stringify({ lines: mutants, noteTo }));
  const options = ['--config', 'test/mutants/vitest.config.ts', '--tagsFilter', '!bulk'];
  const { results } = await vitest(place, options, { TILLSYNC_REACHED: asked });
  const failing = new Set(results.filter(({ status }) => status !== 'passed').map(({ test }) => test));
  for (const test of failing) process.stdout.write(`left out, for it fails without a fault: ${test}\n`);
  const seen = readFileSync(noteTo, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Reached)
    .filter(({ test }) => !failing.has(test));
  const outer = new Set(seen.flatMap((each) => each.outer));
  const reachedBy = reaching(place);
  return (at) => {
    const { file } = mutants[at] ?? { file: '' };
    const tests = seen.filter(({ test, lines, started }) => {
      if (lines.includes(at)) return true;
      // Lines that run in another process are not recorded, so each test that started a program with this file is run.
      if (started.some((program) => reachedBy(program || test).has(file))) return true;
      return outer.has(at) && reachedBy(test).has(file);
    });
    const [, folder = ''] = file.split('/');
    const isNear = (each: Reached) => Number(each.test.startsWith(`test/${folder}/`));
    tests.sort((a, b) => isNear(b) - isNear(a) || a.ms - b.ms);
    let sumMs = 0;
    const quick = tests.filter(({ ms }) => {
      if (sumMs + ms > QUICK_MS) return false;
      sumMs += ms;
      return true;
    });
    const rest = tests.filter((each) => !quick.includes(each));
    return [quick, rest].map((each) => each.map(({ test }) => test));
  };
}

/** Returns a function that finds all files that a file imports or starts, directly or indirectly. */
function reaching(place: string): (from: string) => Set<string> {
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
  const known = new Map<string, Set<string>>();
  return (from) => {
    const before = known.get(from);
    if (before) return before;
    const reached = new Set([from]);
    known.set(from, reached);
    for (const file of reached) {
      try {
        for (const next of importsOf(file)) reached.add(next);
      } catch {
        // There is no such file, because the path is built at run time.
      }
    }
    return reached;
  };
}

/** Puts a fault into the copy and runs the tests. Returns the name of the test that fails, or null. */
async function tryOne(
  place: string,
  { file, line, after }: Mutant,
  tests: readonly string[][],
): Promise<string | null> {
  const target = path.join(place, file);
  const text = readFileSync(target, 'utf8');
  const lines = text.split('\n');
  lines[line - 1] = after;
  writeFileSync(target, lines.join('\n'));
  try {
    for (const some of tests) {
      const failure = await firstFailure(place, some);
      if (failure !== null) return failure;
    }
    return null;
  } finally {
    writeFileSync(target, text);
  }
}

async function firstFailure(place: string, tests: readonly string[]): Promise<string | null> {
  if (tests.length === 0) return null;
  const { status, results } = await vitest(place, ['--bail', '1', '--tagsFilter', '!bulk', ...tests]);
  if (status === 0) return null;
  const failed = results.flatMap(({ test, assertionResults }) =>
    assertionResults
      .filter((each) => each.status === 'failed')
      .map(({ fullName, failureMessages }) => ({
        name: `${test}: ${fullName}`.slice(0, 150),
        // On a busy machine, or where the run was cut off, a timeout may have other causes than the fault.
        isLate: failureMessages.some((each) => /timed out/i.test(each)),
      })),
  );
  const [first] = failed.sort((a, b) => Number(a.isLate) - Number(b.isLate));
  if (first) return `${first.isLate ? 'TIME LIMIT ' : ''}${first.name}`;
  return status === null ? `TIME LIMIT of ${LONGEST_MS / 1_000} s` : 'the run ended early';
}

interface Result {
  test: string;
  status: string;
  assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
}

/** Runs tests. `status` is null when they did not end in time; `results` is empty when they ended without a report. */
async function vitest(
  place: string,
  options: readonly string[],
  env: Record<string, string> = {},
): Promise<{ status: number | null; results: Result[] }> {
  const report = path.join(place, 'outcome.json');
  rmSync(report, { force: true });
  const status = await new Promise<number | null>((resolve) => {
    const words = ['run', '--reporter', 'json', '--outputFile', report, ...options];
    const child = spawn(path.join(ROOT, 'node_modules/.bin/vitest'), words, {
      cwd: place,
      env: { ...process.env, ...env },
      timeout: LONGEST_MS,
      stdio: 'ignore',
      detached: true,
    });
    child.on('exit', (code) => {
      // Ends the daemons that a test left when it was cut off.
      if (child.pid !== undefined) killGroup(child.pid);
      resolve(code);
    });
  });
  try {
    const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
      testResults: (Omit<Result, 'test'> & { name: string })[];
    };
    return {
      status,
      results: testResults.map((each) => ({ ...each, test: path.relative(place, each.name) })),
    };
  } catch {
    return { status, results: [] };
  }
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // All processes have ended.
  }
}

function listFiles(root: string, folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
    .sort();
}
