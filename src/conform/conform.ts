import { programVersion } from '../app/installation.ts';
import { TillsyncError } from '../core/errors.ts';
import { type Clock, isoUtc } from '../core/time.ts';
import { adviceFor, type Behaviour } from './behaviour.ts';
import { BEHAVIOURS } from './behaviours.ts';
import { Place, type Way } from './place.ts';
import { Failing, Stage, Unjudged } from './stage.ts';
import { Till } from './till.ts';

/**
 * Ids of the behaviours that run after all others, in this order, because most of them may leave a till stuck. 23
 * judges all reads of the mirror so far. `LAST` deletes the mirror, so it runs at the very end.
 */
const LATE = [16, 21, 22, 17, 20, 18, 19, 6, 34, 25, 9, 32, 24, 23];
const LAST = 7;

/**
 * Time limits for a till's first acknowledgement: `STARTS_MS` if a command starts the till, `COMES_MS` if a person
 * does.
 */
const STARTS_MS = 30_000;
const COMES_MS = 600_000;
/** Shortest time between a behaviour and its second check, `close`. */
const REPEATS_MS = 12_000;

export type Verdict = 'passed' | 'failed' | 'not-judged';

/** The verdict on one behaviour. */
export interface Judgement {
  id: number;
  does: string;
  verdict: Verdict;
  /** What the till did, or why the behaviour was not judged. */
  saw: string;
  /** Advice that helps if the till failed the behaviour; otherwise null. */
  mend: string | null;
  /** Last lines that the till printed during a failed behaviour, separated by line feeds; null if there are none. */
  printed: string | null;
  chapter: string;
  ms: number;
}

export interface Report {
  version: string;
  /** ISO 8601, UTC. */
  at: string;
  seed: number;
  way: Way;
  /** Time before the due time of a scheduled order at which the till prepares it, in seconds. */
  leadS: number;
  /** Command that started the till; null if a person started it. */
  command: string[] | null;
  durationMs: number;
  passed: number;
  failed: number;
  notJudged: number;
  behaviours: Judgement[];
}

export interface ConformOptions {
  clock: Clock;
  seed: number;
  way: Way;
  /** Time before the due time of a scheduled order at which the till prepares it, in seconds. */
  leadS: number;
  /** Ids of the behaviours to judge; empty for all. */
  only: readonly number[];
  /** Command that starts the till; empty if a person starts the till. */
  command: readonly string[];
  /** Start of the command line of each tillsync command: the program and its first arguments. */
  program: readonly string[];
  env: NodeJS.ProcessEnv;
  signal: AbortSignal;
  /** Called once with the till's environment, before the till is started. */
  onReady(tillEnv: NodeJS.ProcessEnv): void;
  onBegin(behaviour: Behaviour, number: number, of: number): void;
  onJudged(judgement: Judgement): void;
}

/**
 * Plays a shop's day with a till and judges each behaviour. If the signal is aborted or the till stops for good, the
 * remaining behaviours are not judged. Throws `usage` if the till's command cannot be started, or only ends with a
 * fault.
 */
export async function conform(options: ConformOptions): Promise<Report> {
  const { clock, seed, way, leadS, command, program, env, signal } = options;
  const startMs = clock.monotonicMs();
  const at = isoUtc(clock.nowMs());
  const place = await Place.open({ clock, seed, way, leadS, program, env });
  const ends = new AbortController();
  signal.addEventListener('abort', () => ends.abort(), { once: true });
  const till =
    command.length === 0
      ? undefined
      : new Till({ command, env: place.tillEnv, directory: process.cwd(), clock });
  let judged: Judgement[];
  try {
    options.onReady(place.tillEnv);
    const stage = new Stage(place, till, ends.signal, till ? STARTS_MS : COMES_MS);
    const watching = stage.watchReaders();
    till?.start();
    judged = await playAll(stage, options);
    ends.abort();
    await watching;
  } finally {
    ends.abort();
    await till?.kill();
    await place.close();
  }
  const count = (verdict: Verdict) => judged.filter((each) => each.verdict === verdict).length;
  return {
    version: programVersion(),
    ...{ at, seed, way, leadS },
    command: command.length === 0 ? null : [...command],
    durationMs: Math.round(clock.monotonicMs() - startMs),
    passed: count('passed'),
    failed: count('failed'),
    notJudged: count('not-judged'),
    behaviours: judged.sort((a, b) => a.id - b.id),
  };
}

/** Returns the chosen behaviours in the order in which they run. */
function chosen(only: readonly number[]): Behaviour[] {
  const place = ({ id }: Behaviour) => (id === LAST ? LATE.length : LATE.indexOf(id));
  return BEHAVIOURS.filter(({ id }) => only.length === 0 || only.includes(id)).sort(
    (a, b) => place(a) - place(b),
  );
}

async function playAll(stage: Stage, options: ConformOptions): Promise<Judgement[]> {
  const { clock } = options;
  const judged: Judgement[] = [];
  const open: { judgement: Judgement; behaviour: Behaviour; atMs: number }[] = [];
  const behaviours = chosen(options.only);
  const tell = (judgement: Judgement) => {
    judged.push(judgement);
    options.onJudged(judgement);
  };
  const closeAll = async () => {
    for (const { judgement, behaviour, atMs } of open.splice(0)) {
      await stage.pause(Math.max(0, atMs + REPEATS_MS - clock.monotonicMs()));
      const again = await judge(stage, behaviour, behaviour.close ?? behaviour.play);
      const saw = again.verdict === 'passed' ? `${judgement.saw} ${again.saw}` : again.saw;
      tell({ ...again, saw, ms: judgement.ms + again.ms });
    }
  };
  for (const [i, behaviour] of behaviours.entries()) {
    // The last behaviour deletes the mirror, and with it the counts that the till handed over. So all second checks
    // happen before it.
    if (behaviour.id === LAST) await closeAll();
    options.onBegin(behaviour, i + 1, behaviours.length);
    const root = behaviour.needs?.find((id) =>
      judged.some((each) => each.id === id && each.verdict === 'failed'),
    );
    const judgement = await judge(
      stage,
      behaviour,
      root === undefined ? behaviour.play : () => unjudged(root),
    );
    const broken = stage.till?.broken;
    if (broken !== undefined && !stage.hasAcknowledged) throw unstartable(broken);
    if (judgement.verdict === 'passed' && behaviour.close) {
      open.push({ judgement, behaviour, atMs: clock.monotonicMs() });
    } else tell(judgement);
  }
  await closeAll();
  return judged;
}

function unjudged(root: number): Promise<never> {
  throw new Unjudged(`The till failed behaviour ${root}, on which this one builds. Mend that one first.`);
}

function unstartable(message: string): TillsyncError {
  return new TillsyncError('usage', message, {
    hint: 'Run the command by hand until it keeps running, then judge it again. `--help` lists what the till gets in its environment.',
  });
}

async function judge(
  stage: Stage,
  { id, does, mend, chapter }: Behaviour,
  play: (stage: Stage) => Promise<string>,
): Promise<Judgement> {
  const startMs = stage.clock.monotonicMs();
  stage.playing = id;
  const printed = stage.till?.printed ?? 0;
  const verdictOf = (verdict: Verdict, saw: string): Judgement => {
    const broken = stage.till?.broken;
    const isFailed = verdict === 'failed';
    return {
      ...{ id, does, verdict, chapter },
      // A till that stopped for good needs no advice on the behaviour, and its last output is in the reason.
      saw: isFailed ? (broken ?? saw) : saw,
      mend: isFailed && broken === undefined ? adviceFor(mend, stage.place.way) : null,
      printed: isFailed && broken === undefined ? (stage.till?.printedSince(printed) ?? null) : null,
      ms: Math.round(stage.clock.monotonicMs() - startMs),
    };
  };
  if (stage.signal.aborted) return verdictOf('not-judged', 'The kit was stopped before.');
  if (stage.till?.broken !== undefined) return verdictOf('not-judged', 'The till was no longer running.');
  try {
    return verdictOf('passed', await play(stage));
  } catch (error) {
    if (stage.signal.aborted) return verdictOf('not-judged', 'The kit was stopped meanwhile.');
    if (error instanceof Failing) return verdictOf('failed', error.message);
    if (error instanceof Unjudged) return verdictOf('not-judged', error.message);
    const why = error instanceof Error ? error.message : String(error);
    return verdictOf('not-judged', `The kit could not play it: ${why}`);
  } finally {
    // The next behaviour needs a running till and a running tillsync, whatever this one stopped.
    stage.till?.start();
    if (stage.place.localUrl === undefined) await stage.place.startDaemon();
  }
}
