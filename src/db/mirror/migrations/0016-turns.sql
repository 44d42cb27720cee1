-- Whose turn a change goes by: its branch as far as it is known, so that one branch that hands over much does not keep
-- the others waiting. '': of no branch.
ALTER TABLE outbox ADD COLUMN branch TEXT NOT NULL DEFAULT '';
UPDATE outbox SET branch = coalesce(subsidiary_id, '') WHERE state IN ('pending', 'sending') AND subsidiary_id IS NOT NULL;

-- Each branch's line in its order; `basis`, so that whoever counts need not look at the rows.
DROP INDEX outbox_line;
CREATE INDEX outbox_line ON outbox (kind, priority, branch, queue_seq, basis)
  WHERE state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read';
DROP INDEX stock_counts_dirty;
CREATE INDEX stock_counts_dirty ON stock_counts (subsidiary_id, sku) WHERE dirty = 1;
