import { FIGURES, type Figure, type Figures } from './tiers.ts';

/** Results of all turns of one commit on one day, which are one row in docs/proof.md. */
export interface Run {
  day: string;
  commit: string;
  minutes: number;
  figures: Figures;
  passed: number;
  failed: number;
}

export interface Fault {
  day: string;
  commit: string;
  /** Command that repeats the failed run. */
  repeat: string;
  what: string;
}

const NUMBERS = ['minutes', ...FIGURES, 'passed', 'failed'] as const;
const RUNS = '## Runs';
const FAULTS = '## Faults';
const TOTAL = /^In total: .*$/m;

/**
 * Returns the text of docs/proof.md with a run, its faults and the new total. Runs of a commit on one day share a row.
 */
export function recorded(document: string, run: Run, faults: readonly Fault[]): string {
  const runs = runsOf(document);
  const same = runs.findIndex(({ day, commit }) => day === run.day && commit === run.commit);
  if (same < 0) runs.push(run);
  else runs[same] = added(runs[same] as Run, run);
  // The newest day is on top; rows of the same day keep their order.
  runs.sort((a, b) => (a.day < b.day ? 1 : a.day > b.day ? -1 : 0));
  const withRuns = withRows(document, RUNS, runs.map(rowOf));
  const faultRows = faults.map(({ day, commit, repeat, what }) =>
    cells([day, commit, `\`${inCell(repeat)}\``, inCell(what), 'open']),
  );
  const withFaults = withRows(withRuns, FAULTS, [...faultRows, ...rowsUnder(withRuns, FAULTS)]);
  return withFaults.replace(TOTAL, () => totalLine(runs));
}

export function runsOf(document: string): Run[] {
  return rowsUnder(document, RUNS).map((row) => {
    const [day = '', commit = '', ...numbers] = row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim());
    const of = (name: (typeof NUMBERS)[number]) => {
      const number = Number((numbers[NUMBERS.indexOf(name)] || '0').replaceAll(',', ''));
      if (Number.isNaN(number)) throw new Error(`A row of the record is no row of numbers: ${row}`);
      return number;
    };
    const figures = Object.fromEntries(FIGURES.map((name) => [name, of(name)])) as Record<Figure, number>;
    return { day, commit, figures, minutes: of('minutes'), passed: of('passed'), failed: of('failed') };
  });
}

/** Sums each figure. */
export function summed(all: readonly Figures[]): Figures {
  const sum: Figures = {};
  for (const figures of all) for (const name of FIGURES) sum[name] = (sum[name] ?? 0) + (figures[name] ?? 0);
  return sum;
}

/** Returns figures as text, such as `12 seeds, 8 store-days`; a figure of 0 is left out. */
export function told(figures: Figures): string {
  return FIGURES.flatMap((name) => (figures[name] ? [`${grouped(figures[name])} ${name}`] : [])).join(', ');
}

function totalLine(runs: readonly Run[]): string {
  const sum = (of: (run: Run) => number) => grouped(runs.reduce((all, run) => all + of(run), 0));
  const figures = told(summed(runs.map((run) => run.figures)));
  return `In total: ${figures}; ${sum((run) => run.passed)} tests passed, ${sum((run) => run.failed)} failed.`;
}

const added = (a: Run, b: Run): Run => ({
  ...a,
  minutes: a.minutes + b.minutes,
  figures: summed([a.figures, b.figures]),
  passed: a.passed + b.passed,
  failed: a.failed + b.failed,
});

const rowOf = ({ day, commit, minutes, figures, passed, failed }: Run): string =>
  cells([
    day,
    commit,
    ...[minutes, ...FIGURES.map((name) => figures[name] ?? 0), passed, failed].map(grouped),
  ]);

const cells = (all: readonly string[]) => `| ${all.join(' | ')} |`;
const grouped = (number: number) => number.toLocaleString('en-US');
const inCell = (text: string) => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');

/** Returns the index of the first row of the table under a heading, and the index after its last row. */
function placeOf(lines: readonly string[], heading: string): [from: number, to: number] {
  const ruler = lines.findIndex((line, i) => i > lines.indexOf(heading) && /^\|[-:|\s]+\|$/.test(line));
  if (!lines.includes(heading) || ruler < 0) throw new Error(`The record has no table under ${heading}.`);
  let to = ruler + 1;
  while (lines[to]?.startsWith('|')) to += 1;
  return [ruler + 1, to];
}

function rowsUnder(document: string, heading: string): string[] {
  const lines = document.split('\n');
  return lines.slice(...placeOf(lines, heading));
}

function withRows(document: string, heading: string, rows: readonly string[]): string {
  const lines = document.split('\n');
  const [from, to] = placeOf(lines, heading);
  return [...lines.slice(0, from), ...rows, ...lines.slice(to)].join('\n');
}
