-- An invitation stands beside the key that the branch has, which is good until a machine joins with the new one.
-- `public_key`: NULL before it has joined. `invited_key`: may be changed for the branch's own key until `expires_at`.
CREATE TABLE hub_branches_new (
  branch TEXT PRIMARY KEY,
  public_key TEXT,
  invited_key TEXT,
  expires_at TEXT,
  joined_at TEXT,
  seen_at TEXT,
  report TEXT CHECK (json_valid(report)),
  CHECK ((invited_key IS NULL) = (expires_at IS NULL)),
  CHECK ((public_key IS NULL) = (joined_at IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO hub_branches_new (branch, public_key, joined_at, seen_at, report)
  SELECT branch, public_key, coalesce(joined_at, seen_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), seen_at, report
  FROM hub_branches WHERE expires_at IS NULL;
INSERT INTO hub_branches_new (branch, invited_key, expires_at)
  SELECT branch, public_key, expires_at FROM hub_branches WHERE expires_at IS NOT NULL;

DROP TABLE hub_branches;
ALTER TABLE hub_branches_new RENAME TO hub_branches;

-- `next_seed`: a key that the hub may have taken already, kept before it hears of it.
CREATE TABLE link_key_new (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seed TEXT,
  next_seed TEXT
) STRICT;

INSERT INTO link_key_new (one, seed) SELECT one, seed FROM link_key;
DROP TABLE link_key;
ALTER TABLE link_key_new RENAME TO link_key;
