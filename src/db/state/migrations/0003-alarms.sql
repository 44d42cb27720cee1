-- What was told of alarms to each receiver ('command', 'url'), as one JSON text, so that a restart neither
-- repeats nor forgets.
CREATE TABLE alarm_memory (
  receiver TEXT PRIMARY KEY,
  memory TEXT NOT NULL CHECK (json_valid(memory))
) STRICT, WITHOUT ROWID;
