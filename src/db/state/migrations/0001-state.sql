CREATE TABLE boot (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot_id TEXT NOT NULL
) STRICT;

CREATE TABLE lanes (
  endpoint TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  taken_mono_ms REAL,
  taken_until_mono_ms REAL,
  settled_mono_ms REAL,
  held_from_mono_ms REAL,
  held_ms REAL,
  holder TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
  call_id INTEGER PRIMARY KEY AUTOINCREMENT,
  endpoint TEXT NOT NULL,
  counts_from_mono_ms REAL NOT NULL
) STRICT;

CREATE INDEX calls_by_age ON calls (counts_from_mono_ms, endpoint);

CREATE TABLE blocks (
  scope TEXT PRIMARY KEY,
  endpoint TEXT NOT NULL,
  from_mono_ms REAL NOT NULL,
  duration_ms REAL NOT NULL,
  message TEXT NOT NULL,
  others_answered INTEGER NOT NULL DEFAULT 0,
  endpoint_answered INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  fence INTEGER NOT NULL,
  held INTEGER NOT NULL,
  until_mono_ms REAL NOT NULL,
  holder TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  generation INTEGER NOT NULL,
  refresh_token TEXT NOT NULL,
  access_token TEXT,
  saved_at_ms REAL NOT NULL,
  access_expires_at_ms REAL,
  access_issued_at_ms REAL,
  refresh_expires_at_ms REAL,
  clock_skew_ms REAL NOT NULL,
  locked_out_at_ms REAL,
  locked_out_cause TEXT CHECK (locked_out_cause IN ('refused', 'reply-lost')),
  -- Number of refusals in a row, and the time of the last one.
  refusals INTEGER NOT NULL DEFAULT 0,
  refused_at_ms REAL,
  intent_generation INTEGER,
  intent_at_ms REAL
) STRICT;

CREATE TABLE handed_in (
  fingerprint TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE padding (filling BLOB) STRICT;

CREATE TABLE webhook (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  memory TEXT NOT NULL CHECK (json_valid(memory))
) STRICT;

CREATE TABLE alarm_memory (
  receiver TEXT PRIMARY KEY,
  memory TEXT NOT NULL CHECK (json_valid(memory))
) STRICT, WITHOUT ROWID;

CREATE TABLE feed (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seq INTEGER NOT NULL
) STRICT;

CREATE TABLE alarms_aside (
  key TEXT PRIMARY KEY,
  message TEXT NOT NULL,
  raised_at TEXT NOT NULL,
  level TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE callbacks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  entry TEXT NOT NULL CHECK (json_valid(entry))
) STRICT;

CREATE TABLE company (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  company_id TEXT NOT NULL
) STRICT;

CREATE TABLE config_seen (
  key TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE hooks (
  name TEXT PRIMARY KEY,
  news_from TEXT
) STRICT;

-- What hooks were told of the preparation of orders, because the mirror may be lost or replaced by an older copy.
CREATE TABLE prepared_orders (
  hook TEXT NOT NULL,
  order_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  is_prepared INTEGER NOT NULL,
  store TEXT,
  digest TEXT NOT NULL,
  seq INTEGER NOT NULL,
  told_ms REAL NOT NULL,
  PRIMARY KEY (hook, order_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX prepared_orders_by_seq ON prepared_orders (hook, seq);

CREATE TABLE wishes (
  name TEXT PRIMARY KEY,
  wish TEXT NOT NULL
) STRICT;

CREATE TABLE hub (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  keys TEXT NOT NULL CHECK (json_valid(keys)),
  server_config TEXT CHECK (json_valid(server_config))
) STRICT;

CREATE TABLE hub_branches (
  branch TEXT PRIMARY KEY,
  public_key TEXT,
  invited_key TEXT,
  expires_at TEXT,
  joined_at TEXT,
  seen_at TEXT,
  report TEXT CHECK (json_valid(report)),
  name TEXT,
  subsidiary_id TEXT,
  closed_at TEXT,
  refused TEXT CHECK (json_valid(refused)),
  CHECK ((invited_key IS NULL) = (expires_at IS NULL)),
  CHECK ((public_key IS NULL) = (joined_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE link_key (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seed TEXT,
  next_seed TEXT
) STRICT;

CREATE TABLE link_ways (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  kept TEXT NOT NULL CHECK (json_valid(kept))
) STRICT;

CREATE TABLE api_keys (
  digest BLOB PRIMARY KEY,
  name TEXT NOT NULL,
  may TEXT NOT NULL CHECK (json_valid(may)),
  made_at TEXT NOT NULL,
  withdrawn_at TEXT
) STRICT;

CREATE UNIQUE INDEX api_keys_in_use ON api_keys (name) WHERE withdrawn_at IS NULL;
