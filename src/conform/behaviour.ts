import type { Stage } from './stage.ts';

/** What the kit judges of a till. */
export interface Behaviour {
  /** Stays the same in all versions. */
  id: number;
  /** What the till does, as the rest of a sentence that begins with "The till". */
  does: string;
  /** What to look at when it does not. */
  mend: string;
  /** The chapter of docs/pos.md, as in its address. */
  chapter: string;
  /** Plays it, and gives what was seen; throws `Failing` or `Unjudged`. */
  play(stage: Stage): Promise<string>;
  /** Looks again at the end of the day, once the till had time to do something more than once; as `play`. */
  close?(stage: Stage): Promise<string>;
}
