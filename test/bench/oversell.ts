import { writeFileSync } from 'node:fs';
import path from 'node:path';
import type { BenchOptions, BenchResult } from './bench-result.ts';
import { csvOf, pairedDifference, sumOf } from './oversell/figures.ts';
import { type PlayedStrategy, playAll } from './oversell/play-all.ts';
import { DAY } from './oversell/shop-day.ts';
import { BOX } from './oversell/worker.ts';

export const expectedSeconds = { quick: 12, full: 60 };

/** Allowed factor above the optimum. */
const ROOM: Readonly<Record<string, number>> = {
  tillsync: 1.1,
  'tillsync by polling, with looks': 1.3,
};

/** Measures what is sold twice when a till and a web shop share a shelf, for each strategy on the same days. */
export async function run({ quick, progress, oversell = {} }: BenchOptions): Promise<BenchResult[]> {
  const { days = quick ? 30 : 200, seed = 1, strategy, csv } = oversell;
  const own = strategy === undefined ? [] : [{ file: path.resolve(strategy) }];
  const strategies = [...BOX.map(({ name }) => ({ name })), ...own];
  let tenths = 0;
  const played = await playAll({
    strategies,
    settings: DAY,
    seed,
    days,
    progress(done, of) {
      const now = Math.floor((10 * done) / of);
      if (now > tenths) progress(`${done} of ${of} days, seed ${seed}`);
      tenths = now;
    },
  });
  if (csv !== undefined) writeFileSync(csv, csvOf(played));
  const best = played.find(({ name }) => name === 'optimum')?.days ?? [];
  return played.flatMap((each) => resultsOf(each, best));
}

function resultsOf(
  { name, about, days, fault }: PlayedStrategy,
  best: PlayedStrategy['days'],
): BenchResult[] {
  if (fault !== undefined) return [{ name: `${name}: ended early`, ratio: null, bound: '', detail: fault }];
  const per10k = (field: Parameters<typeof sumOf>[1]) =>
    Math.round((sumOf(days, field) / days.length) * 10_000);
  const { mean, from, to } = pairedDifference(days, best);
  const ratio = sumOf(days, 'atsale') / Math.max(1, sumOf(best, 'atsale'));
  const room = ROOM[name];
  const figures =
    `of 10,000 days: ${per10k('atsale')} sold that were not free, ${per10k('outside')} of them offered wrongly, ` +
    `${per10k('conflict')} taken from the shelf before staff came, ${per10k('lost')} free and not offered, ${per10k('calls')} calls; ` +
    `${mean.toFixed(3)} a day more than the optimum (95 %: ${from.toFixed(3)} to ${to.toFixed(3)})`;
  const sold = `${name}: pieces sold that were not free / the optimum`;
  const result = {
    name: sold,
    ratio,
    bound: room === undefined ? '' : `<= ${room}`,
    detail: `${about}; ${figures}`,
  };
  if (name !== 'tillsync') return [result];
  const outside = { name: 'tillsync: pieces offered beyond what anybody could have known', bound: '<= 0' };
  return [result, { ...outside, ratio: sumOf(days, 'outside'), detail: `in ${days.length} days` }];
}
