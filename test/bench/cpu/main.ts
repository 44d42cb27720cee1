import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { fastRoot } from '../../support/fast-files.ts';
import { BRANCH_ORDER } from './branch-order.ts';
import { COUNT_BY_HTTP, COUNT_BY_INBOX, FEED_PAGE } from './changes.ts';
import { CALLBACK, IDLE_MINUTE, START } from './daemon.ts';
import { type CpuFigure, type CpuMeasure, measureCpu } from './measure.ts';
import { LEDGER, MERGE } from './merge.ts';
import { UNCHANGED_POLL } from './poll.ts';
import { comparisonOf, type Kept, sentenceOf } from './verdict.ts';

const MEASURES: readonly CpuMeasure[] = [
  ...[CALLBACK, MERGE, LEDGER, UNCHANGED_POLL, COUNT_BY_INBOX, COUNT_BY_HTTP],
  ...[FEED_PAGE, BRANCH_ORDER, START, IDLE_MINUTE],
];

const KEPT_FILE = path.join(import.meta.dirname, 'kept.json');

/** Maximum number of times that a measure is taken if it is slower than its stored ratio, each time with new files. */
const TRIES_MAX = 4;

const HELP = `Measures the processor time of what tillsync does most, beside bare loops, against the ratios in test/bench/cpu/kept.json.

npm run test:speed -- [--keep] [NAME …]

  NAME        ${MEASURES.map(({ name }) => `"${name}"`).join(', ')}; without one, all
  --keep      writes the ratios down as they are now, better or worse
  -h, --help  this

Exit codes: 0 none takes more than 15 % above what is kept, 2 wrong usage, 3 one does.
`;

process.exitCode = await main();

async function main(): Promise<number> {
  const wanted = readArguments();
  if (typeof wanted === 'number') return wanted;
  goFirst();
  const kept = JSON.parse(readFileSync(KEPT_FILE, 'utf8')) as Kept;
  let isSlower = false;
  for (const measure of wanted.measures) {
    let figure = await measureOnce(measure);
    // A slow measure is repeated. A busy moment or an unlucky memory layout is over the next time, but a real slowdown
    // is not.
    for (
      let more = 1;
      more < TRIES_MAX && comparisonOf(figure.ratio, kept[measure.name]) === 'slower';
      more++
    ) {
      const again = await measureOnce(measure);
      if (again.ratio < figure.ratio) figure = again;
    }
    const { name, beside } = measure;
    const us = (value: number) => `${value.toFixed(value < 100 ? 1 : 0)} µs`;
    const before = wanted.keep ? undefined : kept[name];
    process.stdout.write(
      `${wanted.keep ? `${name}: ${figure.ratio.toFixed(2)} times its bare loop, kept.` : sentenceOf(name, figure, before)}\n` +
        `    ${us(figure.oursUs)}; ${beside}: ${us(figure.bareUs)}\n`,
    );
    if (wanted.keep) kept[name] = Number(figure.ratio.toPrecision(3));
    else if (comparisonOf(figure.ratio, before) === 'slower') isSlower = true;
  }
  if (wanted.keep) writeFileSync(KEPT_FILE, `${JSON.stringify(kept, null, 2)}\n`);
  return isSlower ? 3 : 0;
}

/** Raises the priority of the measurement and its children over the machine's other work; only root may. */
function goFirst(): void {
  try {
    setPriority(constants.priority.PRIORITY_HIGH);
  } catch {
    // Without the priority, the measurement takes longer to settle.
  }
}

/** Returns the measures to take, or an exit code if nothing is to be measured. */
function readArguments(): number | { keep: boolean; measures: readonly CpuMeasure[] } {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        keep: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const unknown = positionals.find((name) => !MEASURES.some((measure) => measure.name === name));
    if (unknown !== undefined) throw new Error(`No measure is called "${unknown}". ${HELP}`);
    const measures = MEASURES.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
    return { keep: values.keep, measures };
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`);
    return 2;
  }
}

async function measureOnce({ open, rounds }: CpuMeasure): Promise<CpuFigure> {
  const directory = mkdtempSync(path.join(fastRoot(), 'tillsync-cpu-'));
  try {
    const sides = await open(directory);
    try {
      return await measureCpu(sides, rounds);
    } finally {
      await sides.close();
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
