import type { Stage } from './stage.ts';

/** A behaviour of a till that the conformance kit judges. */
export interface Behaviour {
  /** Id of the behaviour, which never changes between versions. */
  id: number;
  /** What the till does, as the rest of a sentence that begins with "The till". */
  does: string;
  /** Advice that helps if the till fails the behaviour. */
  mend: string;
  /** Chapter of docs/pos.md, as in its URL fragment. */
  chapter: string;
  /** Runs the behaviour and returns what the till did. Throws `Failing` or `Unjudged`. */
  play(stage: Stage): Promise<string>;
  /**
   * Checks the behaviour again at the end, because a till may repeat a mistake later. Returns and throws as `play`
   * does.
   */
  close?(stage: Stage): Promise<string>;
}
