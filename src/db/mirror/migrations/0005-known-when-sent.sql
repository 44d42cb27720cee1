-- Of which hand-over the count is, so that a correction is no newer word than that; the newest event of the order feed
-- when it was judged: what was heard of by then is part of what was sent, whatever the clocks say; and when it was said
-- last without a call, since the platform had it already, NULL when it was sent.
ALTER TABLE held_back_counts ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE held_back_counts ADD COLUMN heard_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE held_back_counts ADD COLUMN confirmed_at TEXT;
UPDATE held_back_counts SET
  version = coalesce((SELECT max(version) FROM outbox
    WHERE kind = 'stock' AND conflict_key = held_back_counts.conflict_key AND state IN ('sending', 'done')), 0),
  heard_seq = as_of_seq;
