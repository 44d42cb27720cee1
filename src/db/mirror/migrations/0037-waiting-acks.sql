-- An acknowledgement that came while older counts may have lain in the inbox books once these have been taken in: a
-- command says so at this time. NULL: it books, or has booked.
ALTER TABLE order_acks ADD COLUMN waits_since TEXT;
CREATE INDEX order_acks_waiting ON order_acks (waits_since) WHERE waits_since IS NOT NULL;

-- The last acknowledgement of an order that was refused where nobody is there to be told; gone once one is taken.
CREATE TABLE refused_acks (
  order_id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER,
  refused_at TEXT NOT NULL,
  message TEXT NOT NULL
) WITHOUT ROWID;
