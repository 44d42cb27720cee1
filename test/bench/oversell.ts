import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { BUILT_IN_STRATEGIES } from './oversell/built-in-strategies.ts';
import { csvOf, readCsv, type Scenario } from './oversell/csv.ts';
import type { Piece } from './oversell/day-worker.ts';
import { pairedDifference, sumOf } from './oversell/figures.ts';
import { writePage } from './oversell/page.ts';
import { type PlayedStrategy, playAll } from './oversell/play-all.ts';
import { SWEPT_STRATEGIES } from './oversell/plots.ts';
import { DAY } from './oversell/shop-day.ts';

export const expectedSeconds = { quick: 12, full: 60 };
const USUAL_DAYS = { quick: 30, full: 200 };
/** Duration of a sweep, as the number of days, played with all strategies, that take as long. */
const SWEPT_AS_DAYS = 330;

export function timesAsLong({ quick, oversell = {} }: Pick<BenchOptions, 'quick' | 'oversell'>): number {
  const usual = quick ? USUAL_DAYS.quick : USUAL_DAYS.full;
  return ((oversell.days ?? usual) + (oversell.sweep ? SWEPT_AS_DAYS : 0)) / usual;
}

/**
 * Bounds of the ratio by strategy: pieces that the strategy sold although they were not free, divided by the number of
 * such pieces of the optimum.
 */
const ROOM: Readonly<Record<string, number>> = {
  tillsync: 1.1,
  'tillsync by polling, with looks': 1.3,
};

/** Values of the two parameters that matter most. While one is varied, the other keeps its value of an ordinary day. */
const SWEPT_BOOKING_S = [120, 300, 600, 1_200, 2_400];
const SWEPT_ONLINE_SHARES = [0.1, 0.25, 0.5, 0.75, 0.9];
const SWEPT_DAYS = 100;

/** Minimum pause between two writes of the CSV file while days are being played. */
const SAVE_EVERY_MS = 10_000;

/**
 * Maximum CPU time in seconds of 200 days with all built-in strategies. On two processors, that is 60 s of real time.
 */
const PROCESSOR_S_MAX = 120;

interface Wanted {
  bookingS: number;
  onlineShare: number;
  days: number;
  strategies: Piece['strategy'][];
}

/** Measures what is sold twice when a till and a web shop share a shelf, for each strategy on the same days. */
export async function run({ quick, progress, oversell = {} }: BenchOptions): Promise<BenchResult[]> {
  const { days = quick ? USUAL_DAYS.quick : USUAL_DAYS.full, seed = 1, strategy, csv, report } = oversell;
  const { resume = false, sweep = false } = oversell;
  const own = strategy === undefined ? [] : [{ file: path.resolve(strategy) }];
  const strategies = [...BUILT_IN_STRATEGIES.map(({ name }) => ({ name })), ...own];
  const ordinary = { bookingS: DAY.bookingS, onlineShare: DAY.onlineShare, days, strategies };
  const wanted: Wanted[] = [ordinary, ...(sweep ? sweepOf(days) : [])];
  const known =
    resume && csv !== undefined && existsSync(csv) ? readCsv(readFileSync(csv, 'utf8')) : undefined;
  const scenarios: Scenario[] = [];
  let savedMs = performance.now();
  const began = process.cpuUsage();
  let processor: BenchResult | undefined;
  for (const [n, { bookingS, onlineShare, ...rest }] of wanted.entries()) {
    const scenario = { seed, bookingS, onlineShare };
    const where = n === 0 ? '' : `, ${bookingS / 60} min until booked, ${100 * onlineShare} % online`;
    let tenths = 0;
    const played = await playAll({
      ...rest,
      settings: { ...DAY, bookingS, onlineShare },
      seed,
      known: known?.(scenario),
      progress(done, of) {
        const now = Math.floor((10 * done) / of);
        if (now > tenths) progress(`${done} of ${of} days, seed ${seed}${where}`);
        tenths = now;
      },
      onPiece(soFar) {
        if (csv === undefined || performance.now() - savedMs < SAVE_EVERY_MS) return;
        save(csv, [...scenarios, { ...scenario, played: soFar }]);
        savedMs = performance.now();
      },
    });
    scenarios.push({ ...scenario, played });
    if (n === 0 && own.length === 0 && !resume) processor = processorResult(process.cpuUsage(began), days);
  }
  if (csv !== undefined) save(csv, scenarios);
  if (report !== undefined) progress(`wrote ${writePage(report, scenarios)}`);
  const results = scenarios.flatMap(({ played, ...scenario }, n) => {
    const best = played.find(({ name }) => name === 'optimum')?.days ?? [];
    return n === 0 ? played.flatMap((each) => resultsOf(each, best)) : sweptResults(scenario, played, best);
  });
  return processor ? [...results, processor] : results;
}

function processorResult({ user, system }: NodeJS.CpuUsage, days: number): BenchResult {
  const seconds = (user + system) / 1_000_000;
  return {
    name: 'processor time of 200 days with all strategies, in seconds',
    ratio: (200 * seconds) / days,
    bound: `<= ${PROCESSOR_S_MAX}`,
    detail: `${seconds.toFixed(1)} s of all threads for ${days} days; on two processors half of it passes`,
  };
}

/** Returns the scenarios that differ from the ordinary one in one parameter. */
function sweepOf(days: number): Wanted[] {
  const rest = { days: Math.min(days, SWEPT_DAYS), strategies: SWEPT_STRATEGIES.map((name) => ({ name })) };
  const { bookingS, onlineShare } = DAY;
  return [
    ...SWEPT_BOOKING_S.filter((each) => each !== bookingS).map((each) => ({
      ...rest,
      bookingS: each,
      onlineShare,
    })),
    ...SWEPT_ONLINE_SHARES.filter((each) => each !== onlineShare).map((each) => ({
      ...rest,
      bookingS,
      onlineShare: each,
    })),
  ];
}

/** Replaces the file as a whole, so that an interrupted run leaves one that can be read. */
function save(csv: string, scenarios: readonly Scenario[]): void {
  writeFileSync(`${csv}.new`, csvOf(scenarios));
  renameSync(`${csv}.new`, csv);
}

const ratioOf = (days: PlayedStrategy['days'], best: PlayedStrategy['days']) =>
  sumOf(days, 'atsale') / Math.max(1, sumOf(best, 'atsale'));

function resultsOf(
  { name, about, days, fault }: PlayedStrategy,
  best: PlayedStrategy['days'],
): BenchResult[] {
  if (fault !== undefined) return [{ name: `${name}: ended early`, ratio: null, bound: '', detail: fault }];
  const per10k = (field: Parameters<typeof sumOf>[1]) =>
    Math.round((sumOf(days, field) / days.length) * 10_000);
  const { mean, from, to } = pairedDifference(days, best);
  const room = ROOM[name];
  const figures =
    `of 10,000 days: ${per10k('atsale')} sold that were not free, ${per10k('outside')} of them offered wrongly, ` +
    `${per10k('conflict')} taken from the shelf before staff came, ${per10k('lost')} free and not offered, ${per10k('calls')} calls; ` +
    `${mean.toFixed(3)} a day more than the optimum (95 %: ${from.toFixed(3)} to ${to.toFixed(3)})`;
  const sold = `${name}: pieces sold that were not free / the optimum`;
  const result = {
    name: sold,
    ratio: ratioOf(days, best),
    bound: room === undefined ? '' : `<= ${room}`,
    detail: `${about}; ${figures}`,
  };
  if (name !== 'tillsync') return [result];
  const outside = { name: 'tillsync: pieces offered beyond what anybody could have known', bound: '<= 0' };
  return [result, { ...outside, ratio: sumOf(days, 'outside'), detail: `in ${days.length} days` }];
}

/** Returns the results of the strategies that have a bound, because the bound is to hold with other parameters too. */
function sweptResults(
  { bookingS, onlineShare }: Pick<Scenario, 'bookingS' | 'onlineShare'>,
  played: readonly PlayedStrategy[],
  best: PlayedStrategy['days'],
): BenchResult[] {
  const where = `${bookingS / 60} min until booked, ${100 * onlineShare} % online`;
  return played.flatMap(({ name, days }): BenchResult[] => {
    const room = ROOM[name];
    if (room === undefined) return [];
    const detail =
      `${days.length} days: ${sumOf(days, 'atsale')} sold that were not free, ${sumOf(days, 'outside')} of them ` +
      `offered wrongly, ${sumOf(days, 'lost')} free and not offered; the optimum ${sumOf(best, 'atsale')}`;
    return [{ name: `${name}, ${where}`, ratio: ratioOf(days, best), bound: `<= ${room}`, detail }];
  });
}
