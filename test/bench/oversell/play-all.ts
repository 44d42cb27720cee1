import { availableParallelism } from 'node:os';
import { basename } from 'node:path';
import { Worker } from 'node:worker_threads';
import { BUILT_IN_STRATEGIES } from './built-in-strategies.ts';
import type { Piece, Report, WorkerSettings } from './day-worker.ts';
import type { DayOutcome } from './shop-floor.ts';

/** A strategy's result on each day from the first on; `fault` says why it ended early. */
export interface PlayedStrategy {
  name: string;
  about: string;
  days: DayOutcome[];
  fault?: string;
}

export interface PlayAllOptions extends WorkerSettings {
  strategies: readonly Piece['strategy'][];
  days: number;
  /** Days of an earlier run by the name of a built-in strategy; they are not played again. */
  known?: ReadonlyMap<string, readonly DayOutcome[]> | undefined;
  /** Threads that play at once; as many as there are processors if left out. */
  lanes?: number;
  /** Time limit in ms for one day; a strategy that takes longer is ended as hanging. */
  dayMaxMs?: number;
  progress?: (done: number, of: number) => void;
  /** Called with all results so far whenever a piece is finished. */
  onPiece?: (played: readonly PlayedStrategy[]) => void;
}

const DAY_MAX_MS = 60_000;
const PIECE_DAYS = 20;

/** Results of one strategy while its pieces are being played, in any order. */
interface Run {
  strategy: Piece['strategy'];
  name: string;
  about: string;
  days: (DayOutcome | undefined)[];
  /** Earliest fault so far. The day of the fault and later days are left out of the result. */
  fault?: { day: number; message: string };
}

/**
 * Plays all strategies, split into pieces of several days. `lanes`: number of pieces played in parallel, which does not
 * change the result. A failing strategy does not stop the others.
 */
export async function playAll(options: PlayAllOptions): Promise<PlayedStrategy[]> {
  const { strategies, days, seed, known, lanes = availableParallelism(), progress, onPiece } = options;
  const runs = strategies.map((strategy): Run => {
    if ('file' in strategy) return { strategy, name: basename(strategy.file), about: '', days: [] };
    const { name } = strategy;
    const about = BUILT_IN_STRATEGIES.find((each) => each.name === name)?.about ?? '';
    return { strategy, name, about, days: (known?.get(name) ?? []).slice(0, days) };
  });
  const pieces = piecesOf(runs, days);
  const of = strategies.length * days;
  let done = runs.reduce((sum, run) => sum + run.days.length, 0);
  const lane = async () => {
    const player = new Player(options);
    for (let next = pieces.shift(); next; next = pieces.shift()) {
      const { run, piece } = next;
      if (run.fault && run.fault.day < piece.fromDay) continue;
      await player.play(run, piece, () => progress?.(++done, of));
      onPiece?.(runs.map((each) => playedOf(each, seed)));
    }
    player.end();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return runs.map((run) => playedOf(run, seed));
}

/**
 * Returns the pieces of all strategies, earlier days first, so that an interrupted run has the same days of each
 * strategy.
 */
function piecesOf(runs: readonly Run[], days: number): { run: Run; piece: Piece }[] {
  const pieces = runs.flatMap((run) => {
    const own: { run: Run; piece: Piece }[] = [];
    for (let fromDay = run.days.length; fromDay < days; ) {
      const toDay = Math.min(days, (Math.floor(fromDay / PIECE_DAYS) + 1) * PIECE_DAYS);
      own.push({ run, piece: { strategy: run.strategy, fromDay, toDay } });
      fromDay = toDay;
    }
    return own;
  });
  return pieces.sort((a, b) => a.piece.toDay - b.piece.toDay);
}

function playedOf({ name, about, days, fault }: Run, seed: number): PlayedStrategy {
  // A day that no lane has played yet is a hole of the array. It becomes undefined in a copy, so that indexOf finds it.
  const firstHole = [...days].indexOf(undefined);
  const until = Math.min(firstHole < 0 ? days.length : firstHole, fault?.day ?? Number.POSITIVE_INFINITY);
  const played: PlayedStrategy = { name, about, days: days.slice(0, until) as DayOutcome[] };
  if (fault) played.fault = `day ${fault.day} of seed ${seed}: ${fault.message}`;
  return played;
}

/** A thread that plays pieces, replaced by a new one when a strategy has stopped it or made it hang. */
class Player {
  readonly #options: PlayAllOptions;
  #worker: Worker | undefined;

  constructor(options: PlayAllOptions) {
    this.#options = options;
  }

  play(run: Run, piece: Piece, onDay: () => void): Promise<void> {
    const { settings, seed, dayMaxMs = DAY_MAX_MS } = this.#options;
    const workerData: WorkerSettings = { settings, seed };
    const worker = this.#worker ?? new Worker(new URL('./day-worker.ts', import.meta.url), { workerData });
    this.#worker = worker;
    let day = piece.fromDay;
    const fail = (message: string, at = day) => {
      if (!run.fault || at < run.fault.day) run.fault = { day: at, message };
    };
    return new Promise((resolve) => {
      let patience: NodeJS.Timeout | undefined;
      const wait = () => {
        clearTimeout(patience);
        patience = setTimeout(() => {
          fail(`nothing for ${dayMaxMs / 1_000} s, so it hangs`);
          void worker.terminate();
        }, dayMaxMs);
      };
      const end = () => {
        clearTimeout(patience);
        for (const event of ['message', 'error', 'exit']) worker.removeAllListeners(event);
        resolve();
      };
      worker.on('message', (report: Report) => {
        wait();
        if (report.kind === 'begun') Object.assign(run, { name: report.name, about: report.about });
        else if (report.kind === 'fault') fail(report.message, report.day);
        else if (report.kind === 'done') end();
        else {
          run.days[report.day] = report.outcome;
          day = report.day + 1;
          onDay();
        }
      });
      worker.on('error', (error) => fail(error instanceof Error ? error.message : String(error)));
      worker.on('exit', () => {
        this.#worker = undefined;
        if (day < piece.toDay && (!run.fault || run.fault.day > day)) fail('it ended its thread');
        end();
      });
      wait();
      worker.postMessage(piece);
    });
  }

  end(): void {
    void this.#worker?.terminate();
  }
}
