-- `epoch`: the life of this branch's feed where it has one of its own, else it is that of the hub. `doubted_by`: the
-- branch that last said it had heard more than this database ever said.
ALTER TABLE feed_branches ADD COLUMN epoch TEXT;
ALTER TABLE hub ADD COLUMN doubted_by TEXT;
ALTER TABLE hub ADD COLUMN doubted_at TEXT;
