import { readdirSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { describeMachine } from './bench-machine.ts';
import {
  type BenchModule,
  type BenchOptions,
  countVerdicts,
  isMissed,
  isUnmeasured,
  type Section,
  verdictOf,
} from './bench-result.ts';
import { has } from './http-load.ts';
import { writeReport } from './report-file.ts';
import { RunClock } from './run-clock.ts';

const HELP = `Measures tillsync beside the bare limits and what a user would pick instead, in turns, and prints the ratios.

npm run bench -- [--quick] [--branches N] [--json] [--report DIRECTORY] [NAME …]
npm run bench -- oversell [--strategy FILE] [--days N] [--seed N] [--sweep] [--csv FILE [--resume]] [--report DIRECTORY]

  NAME                 ${moduleNames().join(', ')}; without one, all
  --quick              shorter and smaller: enough to see a regression, not to quote; a time may miss its bound by
                       half, since a slow moment of the machine weighs more
  --branches N         of the hub, such as 2000, whose bounds are others; then its queue is not measured
  --strategy FILE      a further strategy for oversell: test/bench/oversell/strategy.ts says what it may do
  --days N, --seed N   of oversell: 200 days of seed 1 unless told
  --sweep              of oversell: also other minutes until staff book, and other shares of online orders
  --csv FILE           of oversell: gets a row for each day and strategy, also while days are played
  --resume             of oversell: goes on from the rows in that file, which the same version has to have written
  --json               one JSON document on standard output instead of the table
  --report DIRECTORY   also writes report.md and its plots (SVG) there; for oversell alone, oversell.md and its plots
  -h, --help           this

Exit codes: 0 every bound is kept, 1 something could not be measured or was left out, 2 wrong usage, 3 a bound is missed.
What needs a program that is not installed is left out, and the end of the table says so: the hub needs nats-server,
the sizes chromium, xz and a package (npm run package). Without wrk a loader of the bench's own takes its place.
Receivers are also measured with what is installed of webhook with sqlite3, and postgresql (Debian packages).

Example: npm run bench -- --quick start mirror
`;

process.exitCode = await main();

async function main(): Promise<number> {
  const wanted = readArguments();
  if (typeof wanted === 'number') return wanted;
  const { quick, branches, oversell, json, report, names } = wanted;
  const machine = describeMachine();
  const date = new Date().toISOString();
  const hasOwnPage = names.join() === 'oversell';
  const own = hasOwnPage ? { ...oversell, report } : oversell;
  const sections = await measure(names, { quick, branches, oversell: own });
  const summary = { date, machine, quick, sections };
  process.stdout.write(json ? `${JSON.stringify(summary, null, 2)}\n` : table(summary));
  if (report !== undefined && !hasOwnPage) {
    const partial = names.length < moduleNames().length;
    process.stderr.write(`Wrote ${writeReport({ ...summary, directory: report, partial })}\n`);
  }
  const results = sections.flatMap((section) => section.results);
  if (sections.some(({ failure }) => failure !== undefined) || results.some(isUnmeasured)) return 1;
  return results.some((result) => isMissed(result, quick)) ? 3 : 0;
}

/** Returns the options and modules of the run, or an exit code if nothing is to be measured. */
function readArguments() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        quick: { type: 'boolean', default: false },
        branches: { type: 'string' },
        strategy: { type: 'string' },
        days: { type: 'string' },
        seed: { type: 'string' },
        sweep: { type: 'boolean', default: false },
        csv: { type: 'string' },
        resume: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        report: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const known = moduleNames();
    const unknown = positionals.find((name) => !known.includes(name));
    if (unknown !== undefined)
      throw new Error(`No bench is called "${unknown}"; there are: ${known.join(', ')}.`);
    const branches = values.branches === undefined ? undefined : Number(values.branches);
    if (branches !== undefined && !(Number.isInteger(branches) && branches >= 10 && branches <= 5_000)) {
      throw new Error(`--branches: found "${values.branches}"; allowed: a whole number from 10 to 5000.`);
    }
    const { strategy, csv, resume, sweep } = values;
    if (resume && csv === undefined) throw new Error('--resume: needs --csv FILE, the file to go on from.');
    const whole = (name: 'days' | 'seed', max: number) => {
      const text = values[name];
      if (text !== undefined && !(/^\d{1,9}$/.test(text) && Number(text) >= 1 && Number(text) <= max)) {
        throw new Error(`--${name}: found "${text}"; allowed: a whole number from 1 to ${max}.`);
      }
      return text === undefined ? undefined : Number(text);
    };
    const oversell = {
      strategy,
      csv,
      resume,
      sweep,
      days: whole('days', 100_000),
      seed: whole('seed', 1_000_000),
    };
    return { ...values, branches, oversell, names: positionals.length === 0 ? known : positionals };
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    return 2;
  }
}

/** Runs modules one after the other. If one fails, the figures of the others are still returned. */
async function measure(
  names: readonly string[],
  { quick, branches, oversell }: Pick<BenchOptions, 'quick' | 'branches' | 'oversell'>,
): Promise<Section[]> {
  const modules: { name: string; module: BenchModule }[] = [];
  for (const name of names) modules.push({ name, module: (await import(`./${name}.ts`)) as BenchModule });
  const parts = modules.map(({ name, module: { expectedSeconds, timesAsLong } }) => ({
    name,
    expectedMs:
      (quick ? expectedSeconds.quick : expectedSeconds.full) *
      (timesAsLong?.({ quick, oversell }) ?? 1) *
      1_000,
  }));
  const clock = new RunClock(parts, performance.now());
  const sections: Section[] = [];
  for (const { name, module } of modules) {
    clock.next(performance.now());
    const progress = (message: string) =>
      process.stderr.write(`${clock.stamp(performance.now())} ${name}: ${message}\n`);
    try {
      sections.push({ name, results: await module.run({ quick, branches, oversell, progress }) });
    } catch (error) {
      const failure = error instanceof Error ? error.message : String(error);
      progress(`ended early: ${failure}`);
      sections.push({ name, results: [], failure });
    }
  }
  return sections;
}

/** Returns the names of the bench modules. The names of helpers and programs in the same directory have a hyphen. */
function moduleNames(): string[] {
  return readdirSync(import.meta.dirname)
    .filter((file) => file.endsWith('.ts') && file !== 'main.ts' && !file.includes('-'))
    .map((file) => file.slice(0, -3))
    .sort();
}

interface Summary {
  date: string;
  machine: string;
  quick: boolean;
  sections: readonly Section[];
}

function table({ date, machine, quick, sections }: Summary): string {
  const { judged, kept } = countVerdicts(sections);
  const lines = [`\n${date.slice(0, 10)}, ${machine}${quick ? ', quick run' : ''}`];
  for (const { name, results, failure } of sections) {
    lines.push('', name);
    for (const result of results) {
      const ratio = result.ratio === null ? 'n/a' : result.ratio.toFixed(2);
      lines.push(
        `  ${verdictOf(result).padEnd(5)}${ratio.padStart(7)}  ${result.bound.padEnd(8)}${result.name}\n${' '.repeat(24)}${result.detail}`,
      );
    }
    if (failure !== undefined) lines.push(`  FAIL  ${failure}`);
  }
  const absent = sections.flatMap(({ results }) => results.filter(isUnmeasured));
  for (const { name, detail } of absent) lines.push('', `${name}: ${detail}`);
  if (!has('wrk'))
    lines.push(
      '',
      'wrk is not installed (sudo apt-get install -y wrk): receivers were measured by a slower loader',
    );
  lines.push('', `${kept} of ${judged} bounds kept`);
  return `${lines.join('\n')}\n`;
}
