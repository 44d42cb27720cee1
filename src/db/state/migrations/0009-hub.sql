-- The hub's own keys for its nats-server, as one JSON text: they never leave this file. `server_config`: where the
-- server's configuration was written and how it is reached.
CREATE TABLE hub (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  keys TEXT NOT NULL CHECK (json_valid(keys)),
  server_config TEXT CHECK (json_valid(server_config))
) STRICT;

-- Branches that were invited. `expires_at`: until then the key of the invitation may be changed for the branch's own;
-- NULL once that is done. What follows is what the branch said last.
CREATE TABLE hub_branches (
  branch TEXT PRIMARY KEY,
  public_key TEXT NOT NULL,
  expires_at TEXT,
  joined_at TEXT,
  seen_at TEXT,
  report TEXT CHECK (json_valid(report))
) STRICT, WITHOUT ROWID;

-- At a branch: its own key, by which the hub knows it. It was made here and never leaves this file.
CREATE TABLE link_key (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seed TEXT NOT NULL
) STRICT;
