-- Version of the first change of its target that was refused, where every one since was refused too; NULL: this is the first.
ALTER TABLE outbox ADD COLUMN refused_since INTEGER;
