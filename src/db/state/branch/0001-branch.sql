-- What state.db of a branch of a hub has beside that of a store.

-- The one row is the key by which the hub knows this branch, and the one that takes its place once the hub has it.
CREATE TABLE link_key (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seed TEXT,
  next_seed TEXT
) STRICT;
