-- A hook has a cursor for each kind of event that it gets: `order` counts by `order_events.seq`, and `change.rejected`
-- by `outbox.settled_seq`. The cursor says: all events up to `seq` were delivered or skipped.
CREATE TABLE hooks_new (
  name TEXT NOT NULL,
  event TEXT NOT NULL DEFAULT 'order',
  seq INTEGER NOT NULL,
  began_at TEXT NOT NULL,
  -- A hook does not get orders that were created before this time and first came by a poll. NULL: it gets them.
  news_from TEXT,
  last_ok_at TEXT,
  -- Failed tries since `last_ok_at`.
  failures INTEGER NOT NULL DEFAULT 0,
  last_failure_at TEXT,
  last_failure TEXT,
  next_try_at TEXT,
  rewinds INTEGER NOT NULL DEFAULT 0,
  rewound_at TEXT,
  PRIMARY KEY (name, event)
) WITHOUT ROWID;
INSERT INTO hooks_new (name, seq, began_at, news_from, last_ok_at, failures, last_failure_at, last_failure, next_try_at,
    rewinds, rewound_at)
  SELECT name, seq, began_at, news_from, last_ok_at, failures, last_failure_at, last_failure, next_try_at,
    rewinds, rewound_at FROM hooks;
DROP TABLE hooks;
ALTER TABLE hooks_new RENAME TO hooks;

ALTER TABLE hook_deliveries ADD COLUMN event TEXT NOT NULL DEFAULT 'order';
-- The change of a rejection. `seq` does not find it for ever, because a change that settles again gets another one.
ALTER TABLE hook_deliveries ADD COLUMN change_id INTEGER;
DROP INDEX hook_deliveries_by_hook;
CREATE INDEX hook_deliveries_by_hook ON hook_deliveries (hook, event, delivery_id);
