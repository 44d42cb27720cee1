-- What state.db of a hub has beside that of a store.

-- The one row is this hub's keys and what its server's configuration is made of.
CREATE TABLE hub (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  keys TEXT NOT NULL CHECK (json_valid(keys)),
  server_config TEXT CHECK (json_valid(server_config))
) STRICT;

-- A row is a branch as this hub knows it: named, invited, joined or closed.
CREATE TABLE hub_branches (
  branch TEXT PRIMARY KEY,
  name TEXT,
  subsidiary_id TEXT,
  public_key TEXT,
  joined_at TEXT,
  invited_key TEXT,
  expires_at TEXT,
  seen_at TEXT,
  report TEXT CHECK (json_valid(report)),
  refused TEXT CHECK (json_valid(refused)),
  closed_at TEXT,
  CHECK ((invited_key IS NULL) = (expires_at IS NULL)),
  CHECK ((public_key IS NULL) = (joined_at IS NULL))
) STRICT, WITHOUT ROWID;
