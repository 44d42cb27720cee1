import type { Way } from './place.ts';
import type { Stage } from './stage.ts';

/** Advice in one wording for all ways, or one for a till that reads the mirror by SQL, one for the API and one for files. */
export type Advice = string | { sql: string; api: string; files: string };

/** A behaviour of a till that the conformance kit judges. */
export interface Behaviour {
  /** Id of the behaviour, which never changes between versions. */
  id: number;
  /** What the till does, as the rest of a sentence that begins with "The till". */
  does: string;
  /** Advice that helps if the till fails the behaviour, with the names of the mirror's columns in backticks. */
  mend: Advice;
  /** Chapter of docs/pos.md, as in its URL fragment. */
  chapter: string;
  /**
   * Ids of earlier behaviours on which this one builds. It is not judged if the till failed one of them, because the
   * till would fail it for the same fault, and its advice would not help.
   */
  needs?: readonly number[];
  /** Runs the behaviour and returns what the till did. Throws `Failing` or `Unjudged`. */
  play(stage: Stage): Promise<string>;
  /**
   * Checks the behaviour again at the end, because a till may repeat a mistake later. Returns and throws as `play`
   * does.
   */
  close?(stage: Stage): Promise<string>;
}

/** Returns the advice for a till's way, with the names that this way uses: `order_id` of the mirror is `orderId` elsewhere. */
export function adviceFor(mend: Advice, way: Way): string {
  if (way === 'sql') return typeof mend === 'string' ? mend : mend.sql;
  const text = typeof mend === 'string' ? mend : way === 'files' ? mend.files : mend.api;
  return text.replace(/`[a-z]+(?:_[a-z]+)+`/g, (name) =>
    name.replace(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase()),
  );
}
