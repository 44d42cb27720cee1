-- Numbers of its feed that a branch may give: none above `leased_seq`. `stopped_seq`: the newest one when it ended in an
-- orderly way; null: it runs, or nobody knows how it ended.
ALTER TABLE feed_branches ADD COLUMN leased_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE feed_branches ADD COLUMN stopped_seq INTEGER;
-- 2^40: no branch ever gave so many.
UPDATE feed_branches SET seq = 0 WHERE seq > 1099511627776;
