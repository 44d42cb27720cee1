/**
 * Remembers outside of the mirror how far its feed has got, so that a mirror that is made anew gives no number a
 * second time. Methods throw `storage-…`.
 */
export interface FeedMemory {
  /** The newest event when that was noted last, which is seldom; undefined: no mirror was ever there. */
  highestSeq(): number | undefined;
  /** Durable when it returns; a lower number than the one that is kept changes nothing. */
  noteSeq(seq: number): void;
}

/**
 * How far the order feed leaps when nothing tells for certain how far it came: more events than a busy store has in
 * years, and two thousand such leaps still fit into a 32-bit number of a POS.
 */
export const FEED_JUMP = 1_000_000;
