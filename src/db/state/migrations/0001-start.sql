-- Everything that all processes of one company share: pacing, tokens, leases. Times named mono_ms are on the
-- monotonic clock of the boot named in `boot`; times named at_ms are wall clock, for people and tokens.

CREATE TABLE boot (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  boot_id TEXT NOT NULL
) STRICT;

-- One lane per endpoint: which process is in it, and when its last call was answered.
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

-- One row per call of the sliding window; it counts from its answer, or from the end of its hold.
CREATE TABLE calls (
  call_id INTEGER PRIMARY KEY AUTOINCREMENT,
  endpoint TEXT NOT NULL,
  counts_from_mono_ms REAL NOT NULL
) STRICT;
CREATE INDEX calls_by_age ON calls (counts_from_mono_ms, endpoint);

-- The last block of the token ('all') and of single endpoints, kept after its end for what follows from it.
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
  intent_generation INTEGER,
  intent_at_ms REAL
) STRICT;

-- sha256 of every refresh token that a person handed in, so that an old one is not taken for a new one.
CREATE TABLE handed_in (
  fingerprint TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Holds pages free in the file, so that small saves need no room on the disk.
CREATE TABLE padding (filling BLOB) STRICT;
