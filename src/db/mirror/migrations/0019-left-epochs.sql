-- JSON array of the lives of the hub's feed that this branch has left, the last ones. What the server gives again of one
-- of them must not be taken for a new beginning: orders would go back, and forward once more.
ALTER TABLE link ADD COLUMN left_epochs TEXT NOT NULL DEFAULT '[]';
