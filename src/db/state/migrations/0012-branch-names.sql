-- A branch is `branch`, from its first invitation on; what it is called may change. `name`: NULL is the same.
-- `subsidiary_id`: as the configuration had it last, by which a new name of an old branch is known.
ALTER TABLE hub_branches ADD COLUMN name TEXT;
ALTER TABLE hub_branches ADD COLUMN subsidiary_id TEXT;
-- Until it is invited again nothing is read for it, and nothing is said of it.
ALTER TABLE hub_branches ADD COLUMN closed_at TEXT;
