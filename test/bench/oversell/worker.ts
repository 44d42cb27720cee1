import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';
import { PLAIN_STRATEGIES } from './plain-strategies.ts';
import { type DayOutcome, playDay } from './play-day.ts';
import { type DaySettings, shopDay } from './shop-day.ts';
import type { NamedStrategy } from './strategy.ts';
import { TILLSYNC_STRATEGIES } from './tillsync-strategy.ts';

/** The days that a worker plays, and their parameters. */
export interface Played {
  /** A built-in strategy by name, or a file whose default export is one. */
  strategy: { name: string } | { file: string };
  settings: DaySettings;
  seed: number;
  days: number;
}

export type Report =
  | { kind: 'begun'; name: string; about: string }
  | { kind: 'day'; day: number; outcome: DayOutcome }
  | { kind: 'fault'; day: number; message: string }
  | { kind: 'done' };

/** The built-in strategy with full knowledge, which plays without calls and which no other can surpass. */
const OPTIMUM: NamedStrategy = {
  name: 'optimum',
  about: 'what the POS has less what it has not booked, without delay: no information gives more',
  create: () => ({}),
};

export const BOX: readonly NamedStrategy[] = [OPTIMUM, ...PLAIN_STRATEGIES, ...TILLSYNC_STRATEGIES];

async function strategyOf(which: Played['strategy']): Promise<NamedStrategy> {
  if ('file' in which) {
    const { default: foreign } = (await import(pathToFileURL(which.file).href)) as {
      default?: NamedStrategy;
    };
    if (typeof foreign?.create !== 'function') throw new Error('it has no default export with create()');
    return foreign;
  }
  const found = BOX.find(({ name }) => name === which.name);
  if (!found) throw new Error(`no strategy is called "${which.name}"`);
  return found;
}

async function play({ strategy: which, settings, seed, days }: Played): Promise<void> {
  const tell = (report: Report) => parentPort?.postMessage(report);
  let day = 0;
  try {
    const strategy = await strategyOf(which);
    tell({ kind: 'begun', name: strategy.name, about: strategy.about });
    const hears = strategy.hears ?? settings.hears;
    for (; day < days; day++) {
      const outcome = await playDay(shopDay({ ...settings, hears }, seed, day), await strategy.create(), {
        isOptimum: strategy === OPTIMUM,
      });
      tell({ kind: 'day', day, outcome });
    }
    tell({ kind: 'done' });
  } catch (error) {
    tell({ kind: 'fault', day, message: error instanceof Error ? error.message : String(error) });
  }
}

if (parentPort) void play(workerData as Played);
