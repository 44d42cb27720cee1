-- Keys of the local API that have a name and rights of their own, as SHA-256. A withdrawn one stays, so that whoever goes on
-- using it is named.
CREATE TABLE api_keys (
  digest BLOB PRIMARY KEY,
  name TEXT NOT NULL,
  may TEXT NOT NULL CHECK (json_valid(may)),
  made_at TEXT NOT NULL,
  withdrawn_at TEXT
) STRICT;

CREATE UNIQUE INDEX api_keys_in_use ON api_keys (name) WHERE withdrawn_at IS NULL;
