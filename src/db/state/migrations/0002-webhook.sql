-- What was rotated and registered from here, as one JSON text; the secrets in it never leave this file.
CREATE TABLE webhook (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  memory TEXT NOT NULL CHECK (json_valid(memory))
) STRICT;
