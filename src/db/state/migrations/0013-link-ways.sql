-- Where a branch looks for its hub beside what its configuration says, as JSON: `announced` by the hub last, and `worked`, the
-- way on which the hub answered last.
CREATE TABLE link_ways (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  kept TEXT NOT NULL CHECK (json_valid(kept))
) STRICT;
