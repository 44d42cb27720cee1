-- When this hub was restored from a backup last: what its branches say of customers who were forgotten counts for a while.
ALTER TABLE hub ADD COLUMN restored_at TEXT;

-- At a branch: orders that came from the hub with a customer who is forgotten here, until the hub has heard of it.
CREATE TABLE forgotten_up (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
