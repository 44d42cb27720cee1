-- Alarms that the mirror could not take, for whoever looks beside the daemon.
CREATE TABLE alarms_aside (
  key TEXT PRIMARY KEY,
  message TEXT NOT NULL,
  raised_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- The last callbacks and what was answered, each as one JSON text without customer data.
CREATE TABLE callbacks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  entry TEXT NOT NULL CHECK (json_valid(entry))
) STRICT;
