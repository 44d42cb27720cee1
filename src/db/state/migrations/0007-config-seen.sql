-- The configuration as it was at the last start: a digest for each key, so that a start can say which ones changed.
CREATE TABLE config_seen (
  key TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL
) WITHOUT ROWID;
