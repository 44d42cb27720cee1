-- JSON of what a change replaced, for `outbox undo`: the count before (or what the platform had), or the product's values;
-- `asOfSeq`: the newest order event that a count before contains. NULL: not known, or the change has not left.
ALTER TABLE outbox ADD COLUMN value_before TEXT;
