/** Options of a bench module. */
export interface BenchOptions {
  /** Whether runs are shorter and data smaller, which is enough to notice a regression but not to quote figures. */
  quick: boolean;
  /** Branches of the hub; 500 if left out. */
  branches?: number | undefined;
  oversell?: OversellOptions | undefined;
  /** Writes the name of the running measurement to standard error, for the person who waits. */
  progress(message: string): void;
}

/** Options of `oversell` alone. */
interface OversellOptions {
  days?: number | undefined;
  seed?: number | undefined;
  /** File of a further strategy. */
  strategy?: string | undefined;
  /** File that gets a row for each day and strategy. */
  csv?: string | undefined;
  /** Whether days that the CSV file already has are skipped. */
  resume?: boolean;
  /** Whether the two parameters that matter most are varied too. */
  sweep?: boolean;
  /** Directory into which a page of its own with plots is written; none if left out. */
  report?: string | undefined;
}

/** A ratio of two measures that were taken in interleaved runs on one machine. */
export interface BenchResult {
  /** The comparison, in one line. */
  name: string;
  /** The measured figure; null if it could not be measured here, with the reason in `detail`. */
  ratio: number | null;
  /** Limit of the ratio, such as `>= 0.40` or `<= 2.1`. With an empty text, the ratio has no verdict. */
  bound: string;
  /** The figures behind the ratio. */
  detail: string;
  /** Side-by-side measurements, for a plot. */
  comparison?: Comparison;
}

/** A comparison of several ways to do the same work, under the same load. */
export interface Comparison {
  title: string;
  ways: { label: string; perSecond: number; p50Ms: number; p99Ms: number }[];
}

/** Returns the entry for a figure that needs a missing program. */
export function leftOut(program: string, debianPackage = program): { ratio: null; detail: string } {
  const detail = `left out: ${program} is not installed (sudo apt-get install -y ${debianPackage})`;
  return { ratio: null, detail };
}

/** Every `test/bench/NAME.ts` that exports `run` is a bench module. */
export interface BenchModule {
  run(options: BenchOptions): Promise<BenchResult[]>;
  /** Duration on an idle machine, to estimate the remaining time. */
  expectedSeconds: { quick: number; full: number };
  /** Returns the factor by which these options lengthen the run; 1 if left out. */
  timesAsLong?(options: Pick<BenchOptions, 'quick' | 'oversell'>): number;
}

/** Result of one bench module. */
export interface Section {
  name: string;
  results: BenchResult[];
  /** Reason why the module ended early. Its results are then lost. */
  failure?: string;
}

/** Verdict on a bound; `-` if there is nothing to judge. */
export type Verdict = 'pass' | 'MISS' | '-';

export function verdictOf({ ratio, bound }: BenchResult): Verdict {
  const kept = keepsBound(ratio, bound);
  return kept === undefined ? '-' : kept ? 'pass' : 'MISS';
}

/** Counts the judged bounds and those that were kept. */
export function countVerdicts(sections: readonly Section[]): { judged: number; kept: number } {
  const verdicts = sections.flatMap(({ results }) => results.map(verdictOf)).filter((each) => each !== '-');
  return { judged: verdicts.length, kept: verdicts.filter((each) => each === 'pass').length };
}

/** Whether a result has a bound but no figure. */
export function isUnmeasured({ ratio, bound }: BenchResult): boolean {
  return ratio === null && bound !== '';
}

/** Factor by which a quick run may miss a bound, because it has few rounds. */
const QUICK_ROOM = 1.5;

/**
 * Whether a result makes the run fail. A quick run may miss a bound by `QUICK_ROOM`, except `<= 0` and `<= 1`, which
 * limit counted numbers. These are exact in a quick run too.
 */
export function isMissed({ ratio, bound }: BenchResult, quick: boolean): boolean {
  return keepsBound(ratio, bound, quick && !/^<= [01]$/.test(bound) ? QUICK_ROOM : 1) === false;
}

/** Whether `ratio` keeps `bound`; undefined if there is nothing to judge. */
function keepsBound(ratio: number | null, bound: string, room = 1): boolean | undefined {
  const match = /^(>=|<=)\s*(\d+(?:\.\d+)?)$/.exec(bound.trim());
  if (ratio === null || !match) return undefined;
  const limit = Number(match[2]);
  return match[1] === '>=' ? ratio >= limit / room : ratio <= limit * room;
}

/** Returns the range of the rounds, which shows the machine's noise. */
export function spread(ratios: readonly number[]): string {
  if (ratios.length < 2) return '';
  return `${ratios.length} rounds from ${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`;
}

/** Returns the median; for an even number of values, the mean of the two middle ones. */
export function median(values: readonly number[]): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const upper = sorted.length >> 1;
  const high = sorted[upper] as number;
  return sorted.length % 2 === 1 ? high : (high + (sorted[upper - 1] as number)) / 2;
}
