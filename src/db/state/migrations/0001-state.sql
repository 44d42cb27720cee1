-- A row is a fact by its name: `boot`, the start of the machine to which the times `mono` belong; `company`, to which
-- this store belongs; `webhook`, the registration of callbacks and their secrets; `feed.seq`, the order feed's newest
-- number, and `hook.NAME`, with what a hook starts, because the mirror may be lost; `alarms.NAME`, what a receiver of
-- alarms was told; `backup.key.RECIPIENT`, the secret of the key that signs the backups for a recovery phrase.
CREATE TABLE facts (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Rate limits and leases. Their times are those of the machine's clock since its start (`mono`).

-- A row is an endpoint of the platform, under way for one call at most.
CREATE TABLE lanes (
  endpoint TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  holder TEXT,
  taken_mono_ms REAL,
  taken_until_mono_ms REAL,
  settled_mono_ms REAL,
  held_from_mono_ms REAL,
  held_ms REAL
) STRICT, WITHOUT ROWID;

-- A row is a call that counts in the platform's windows.
CREATE TABLE calls (
  call_id INTEGER PRIMARY KEY AUTOINCREMENT,
  endpoint TEXT NOT NULL,
  counts_from_mono_ms REAL NOT NULL
) STRICT;

CREATE INDEX calls_by_age ON calls (counts_from_mono_ms, endpoint);

-- A row is a time in which the platform's 403 stops all calls, or those of one endpoint.
CREATE TABLE blocks (
  scope TEXT PRIMARY KEY,
  endpoint TEXT NOT NULL,
  from_mono_ms REAL NOT NULL,
  duration_ms REAL NOT NULL,
  message TEXT NOT NULL,
  others_answered INTEGER NOT NULL DEFAULT 0,
  endpoint_answered INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A row is work that one process at a time may do, with the process that does it.
CREATE TABLE leases (
  name TEXT PRIMARY KEY,
  fence INTEGER NOT NULL,
  held INTEGER NOT NULL,
  until_mono_ms REAL NOT NULL,
  holder TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Keys and tokens.

-- The one row is the pair of tokens for the platform.
CREATE TABLE tokens (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  generation INTEGER NOT NULL,
  refresh_token TEXT NOT NULL,
  refresh_expires_at_ms REAL,
  access_token TEXT,
  access_issued_at_ms REAL,
  access_expires_at_ms REAL,
  saved_at_ms REAL NOT NULL,
  clock_skew_ms REAL NOT NULL,
  locked_out_at_ms REAL,
  locked_out_cause TEXT CHECK (locked_out_cause IN ('refused', 'reply-lost')),
  -- Number of refusals in a row, and the time of the last one.
  refusals INTEGER NOT NULL DEFAULT 0,
  refused_at_ms REAL,
  -- A renewal that has begun and not ended: the generation that it renews, and when it began.
  intent_generation INTEGER,
  intent_at_ms REAL
) STRICT;

-- A row is the fingerprint of a refresh token that a person handed in.
CREATE TABLE handed_in (
  fingerprint TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- A row is a key of the local API.
CREATE TABLE api_keys (
  digest BLOB PRIMARY KEY,
  name TEXT NOT NULL,
  may TEXT NOT NULL CHECK (json_valid(may)),
  made_at TEXT NOT NULL,
  withdrawn_at TEXT
) STRICT;

CREATE UNIQUE INDEX api_keys_in_use ON api_keys (name) WHERE withdrawn_at IS NULL;

-- Orders and hooks.

-- A row is a callback that arrived, for `callbacks tail`.
CREATE TABLE callbacks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  entry TEXT NOT NULL CHECK (json_valid(entry))
) STRICT;

-- A row is what a hook was told of an order's preparation, because the mirror may be lost or replaced by an older copy.
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

-- Health and commands.

-- A row is an alarm that the daemon could not write into the mirror.
CREATE TABLE alarms_aside (
  key TEXT PRIMARY KEY,
  message TEXT NOT NULL,
  level TEXT,
  raised_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is a value of the configuration, or a secret, as of the last start.
CREATE TABLE config_seen (
  key TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL
) WITHOUT ROWID;

-- A row fills pages for a moment, so that the file has free ones when the disk is full.
CREATE TABLE padding (
  filling BLOB
) STRICT;
