-- Open orders of which something was sent that cannot be read. `reason`: what, without its value. `quarantine_id`: where
-- that is noted.
CREATE TABLE incomplete_orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  reason TEXT NOT NULL,
  since TEXT NOT NULL,
  quarantine_id INTEGER
) WITHOUT ROWID;
