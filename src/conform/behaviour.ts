import type { Stage } from './stage.ts';

/** A behaviour of a till that the kit judges. */
export interface Behaviour {
  /** Id of the behaviour, the same in all versions. */
  id: number;
  /** What the till does, as the rest of a sentence that begins with "The till". */
  does: string;
  /** Advice on the cause if the till does not do it. */
  mend: string;
  /** The chapter of docs/pos.md, as in its address. */
  chapter: string;
  /** Runs the behaviour and returns what the till did; throws `Failing` or `Unjudged`. */
  play(stage: Stage): Promise<string>;
  /**
   * Checks the behaviour again at the end, when the till had time to repeat a mistake. Returns and throws as `play`
   * does.
   */
  close?(stage: Stage): Promise<string>;
}
