-- When the count was said last without a call for it, since the platform seemed to have it already. NULL: it was sent.
ALTER TABLE held_back_counts ADD COLUMN confirmed_at TEXT;
