/** What a bench module is asked for. */
export interface BenchOptions {
  /** Shorter runs and smaller data: enough to see a regression, not to quote. */
  quick: boolean;
  /** Of a hub; left out: 500. */
  branches?: number | undefined;
  /** Of `oversell`. */
  oversell?:
    | { days?: number | undefined; seed?: number | undefined; strategy?: string; csv?: string }
    | undefined;
  /** Says what is being measured, for the person who waits; goes to standard error. */
  progress(message: string): void;
}

/** One figure: a ratio of two things measured in interleaved runs on one machine. */
export interface BenchResult {
  /** What is compared, in one line. */
  name: string;
  /** The measured figure; null when it could not be measured here, and `detail` says why. */
  ratio: number | null;
  /** `>= 0.40`, `<= 2.1`; an empty text is shown without a verdict. */
  bound: string;
  /** The figures behind the ratio. */
  detail: string;
  /** What was measured side by side, for a plot. */
  comparison?: Comparison;
}

/** Ways to do the same, under the same load. */
export interface Comparison {
  title: string;
  ways: { label: string; perSecond: number; p50Ms: number; p99Ms: number }[];
}

/** What stands for a figure that needs a program which is not here. */
export function leftOut(program: string, debianPackage = program): { ratio: null; detail: string } {
  const detail = `left out: ${program} is not installed (sudo apt-get install -y ${debianPackage})`;
  return { ratio: null, detail };
}

/** Every `test/bench/NAME.ts` that exports `run` is a bench module. */
export interface BenchModule {
  run(options: BenchOptions): Promise<BenchResult[]>;
  /** How long it takes on a machine with nothing else to do, for the estimate of the time left. */
  expectedSeconds: { quick: number; full: number };
}

/** What became of one bench module. */
export interface Section {
  name: string;
  results: BenchResult[];
  /** Why it ended early; its results are lost then. */
  failure?: string;
}

/** `-`: nothing to judge. */
export type Verdict = 'pass' | 'MISS' | '-';

export function verdictOf({ ratio, bound }: BenchResult): Verdict {
  const kept = keepsBound(ratio, bound);
  return kept === undefined ? '-' : kept ? 'pass' : 'MISS';
}

/** How many bounds there were to keep, and how many were. */
export function countVerdicts(sections: readonly Section[]): { judged: number; kept: number } {
  const verdicts = sections.flatMap(({ results }) => results.map(verdictOf)).filter((each) => each !== '-');
  return { judged: verdicts.length, kept: verdicts.filter((each) => each === 'pass').length };
}

/** Whether there is a bound and no figure to hold against it. */
export function isUnmeasured({ ratio, bound }: BenchResult): boolean {
  return ratio === null && bound !== '';
}

/** How far a quick run, which has few rounds, may go beyond the bound of a time. */
const QUICK_ROOM = 1.5;

/** Whether a run fails for it. Counts, which have bounds up to 1, are as exact in a quick run. */
export function isMissed({ ratio, bound }: BenchResult, quick: boolean): boolean {
  return keepsBound(ratio, bound, quick && !/^<= [01]$/.test(bound) ? QUICK_ROOM : 1) === false;
}

/** Whether `ratio` keeps `bound`; undefined when there is nothing to judge. */
function keepsBound(ratio: number | null, bound: string, room = 1): boolean | undefined {
  const match = /^(>=|<=)\s*(\d+(?:\.\d+)?)$/.exec(bound.trim());
  if (ratio === null || !match) return undefined;
  const limit = Number(match[2]);
  return match[1] === '>=' ? ratio >= limit / room : ratio <= limit * room;
}

/** How far the rounds lie apart, so that a reader sees what the machine's noise may have done. */
export function spread(ratios: readonly number[]): string {
  if (ratios.length < 2) return '';
  return `${ratios.length} rounds from ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`;
}

/** Middle value; the mean of the two middle ones when their number is even. */
export function median(values: readonly number[]): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const upper = sorted.length >> 1;
  const high = sorted[upper] as number;
  return sorted.length % 2 === 1 ? high : (high + (sorted[upper - 1] as number)) / 2;
}
