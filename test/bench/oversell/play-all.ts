import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { DayOutcome } from './play-day.ts';
import type { DaySettings } from './shop-day.ts';
import type { Played, Report } from './worker.ts';

/** A strategy's result on each day; `fault` says why it ended early. */
export interface PlayedStrategy {
  name: string;
  about: string;
  days: DayOutcome[];
  fault?: string;
}

export interface PlayAllOptions {
  strategies: readonly Played['strategy'][];
  settings: DaySettings;
  seed: number;
  days: number;
  /** A strategy that takes longer for one day hangs. */
  dayMaxMs?: number;
  progress?: (done: number, of: number) => void;
}

const DAY_MAX_MS = 20_000;

/**
 * Plays all strategies, each in its own thread, as many at once as there are processors. A failing one does not stop
 * the others.
 */
export async function playAll(options: PlayAllOptions): Promise<PlayedStrategy[]> {
  const { strategies, days, progress } = options;
  const played: PlayedStrategy[] = new Array(strategies.length);
  let [next, done] = [0, 0];
  const onDay = () => progress?.(++done, strategies.length * days);
  const lane = async () => {
    while (next < strategies.length) {
      const at = next++;
      const which = strategies[at];
      if (which) played[at] = await playOne(which, options, onDay);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, lane));
  return played;
}

function playOne(
  strategy: Played['strategy'],
  { settings, seed, days, dayMaxMs = DAY_MAX_MS }: PlayAllOptions,
  onDay: () => void,
): Promise<PlayedStrategy> {
  const workerData: Played = { strategy, settings, seed, days };
  const worker = new Worker(new URL('./worker.ts', import.meta.url), { workerData });
  const played: PlayedStrategy = {
    name: 'file' in strategy ? basename(strategy.file) : strategy.name,
    about: '',
    days: [],
  };
  const end = (fault?: string) => {
    if (fault !== undefined) played.fault = `day ${played.days.length} of seed ${seed}: ${fault}`;
  };
  return new Promise((resolve) => {
    let patience: NodeJS.Timeout;
    const wait = () => {
      clearTimeout(patience);
      patience = setTimeout(() => {
        end(`nothing for ${dayMaxMs / 1_000} s, so it hangs`);
        void worker.terminate();
      }, dayMaxMs);
    };
    wait();
    worker.on('message', (report: Report) => {
      wait();
      if (report.kind === 'begun') Object.assign(played, { name: report.name, about: report.about });
      else if (report.kind === 'day') {
        played.days.push(report.outcome);
        onDay();
      } else if (report.kind === 'fault') end(report.message);
    });
    worker.on('error', (error) => end(error instanceof Error ? error.message : String(error)));
    worker.on('exit', () => {
      clearTimeout(patience);
      resolve(played);
    });
  });
}
