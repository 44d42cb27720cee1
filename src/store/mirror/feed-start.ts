import type Database from 'better-sqlite3';
import { FEED_JUMP } from '../../domain/order/feed-memory.ts';

/** No event gets `seq` or a lower number any more. The caller's transaction. */
export function continueFeedAfter(db: Database.Database, seq: number): void {
  const raised = db
    .prepare("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'order_events'")
    .run(seq);
  if (raised.changes === 0) {
    db.prepare("INSERT INTO sqlite_sequence (name, seq) VALUES ('order_events', ?)").run(seq);
  }
  // Tells the mirror that began by what was known then from one that is new.
  db.prepare("INSERT OR IGNORE INTO marks (name, value) VALUES ('feed.begun', 1)").run();
}

/**
 * To be called before the first event is written to a mirror: goes on far after `highestSeq`, what was noted of
 * the mirror before, when this one is new, or an older copy that somebody put there. Returns the newest number that
 * is taken.
 */
export function beginFeed(db: Database.Database, highestSeq: number | undefined): number {
  const newestSeq = db
    .prepare<[], number>("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'order_events'), 0)")
    .pluck();
  const begun = db.prepare("SELECT 1 FROM marks WHERE name = 'feed.begun'").pluck();
  const isSound = () => {
    if (highestSeq === undefined) return begun.get() !== undefined;
    const newest = newestSeq.get() ?? 0;
    // A mirror from before the mark has given numbers of its own.
    return newest >= highestSeq && (newest > 0 || begun.get() !== undefined);
  };
  if (!isSound()) {
    db.transaction(() => {
      // Another process may have been first.
      if (!isSound()) continueFeedAfter(db, highestSeq === undefined ? 0 : highestSeq + FEED_JUMP);
    }).immediate();
  }
  return newestSeq.get() ?? 0;
}
