import { pathToFileURL } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';
import { BUILT_IN_STRATEGIES, OPTIMUM } from './built-in-strategies.ts';
import { playDay } from './play-day.ts';
import { type DaySettings, shopDay } from './shop-day.ts';
import type { DayOutcome } from './shop-floor.ts';
import type { NamedStrategy } from './strategy.ts';

/** Parameters of a thread, which are the same for all days that it plays. */
export interface WorkerSettings {
  settings: DaySettings;
  seed: number;
}

/** Some days of one strategy. */
export interface Piece {
  /** A built-in strategy by name, or a file whose default export is one. */
  strategy: { name: string } | { file: string };
  fromDay: number;
  /** The first day after the piece. */
  toDay: number;
}

export type Report =
  | { kind: 'begun'; name: string; about: string }
  | { kind: 'day'; day: number; outcome: DayOutcome }
  | { kind: 'fault'; day: number; message: string }
  | { kind: 'done' };

async function strategyOf(which: Piece['strategy']): Promise<NamedStrategy> {
  if ('file' in which) {
    const { default: foreign } = (await import(pathToFileURL(which.file).href)) as {
      default?: NamedStrategy;
    };
    if (typeof foreign?.create !== 'function') throw new Error('it has no default export with create()');
    return foreign;
  }
  const found = BUILT_IN_STRATEGIES.find(({ name }) => name === which.name);
  if (!found) throw new Error(`no strategy is called "${which.name}"`);
  return found;
}

async function play({ strategy: which, fromDay, toDay }: Piece): Promise<void> {
  const { settings, seed } = workerData as WorkerSettings;
  const tell = (report: Report) => parentPort?.postMessage(report);
  let day = fromDay;
  try {
    const strategy = await strategyOf(which);
    tell({ kind: 'begun', name: strategy.name, about: strategy.about });
    const hears = strategy.hears ?? settings.hears;
    for (; day < toDay; day++) {
      const outcome = await playDay(shopDay({ ...settings, hears }, seed, day), await strategy.create(), {
        isOptimum: strategy === OPTIMUM,
      });
      tell({ kind: 'day', day, outcome });
    }
  } catch (error) {
    tell({ kind: 'fault', day, message: error instanceof Error ? error.message : String(error) });
  }
  tell({ kind: 'done' });
}

parentPort?.on('message', (piece: Piece) => void play(piece));
