-- How far each of the configured hooks has got in the order feed: it has taken, or passed over, all up to `seq`.
CREATE TABLE hooks (
  name TEXT NOT NULL PRIMARY KEY,
  seq INTEGER NOT NULL,
  began_at TEXT NOT NULL,
  -- Orders that were created before and are first heard of by a poll are no news for it. NULL: all are.
  news_from TEXT,
  last_ok_at TEXT,
  -- Failures since then.
  failures INTEGER NOT NULL DEFAULT 0,
  last_failure_at TEXT,
  last_failure TEXT,
  next_try_at TEXT
) WITHOUT ROWID;
