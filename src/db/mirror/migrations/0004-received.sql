-- What was received of an order beside what `orders.payload` holds, so that it can be read again by other rules.
-- Nothing stands in both: a payload comes here when a newer one takes its place.
CREATE TABLE order_payloads (
  payload_id INTEGER PRIMARY KEY,
  order_id TEXT NOT NULL,
  -- The order's newest event once this was merged.
  seq INTEGER NOT NULL,
  -- 1: it brought that event; 0: it said what was known.
  applied INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('webhook', 'poll')),
  received_at TEXT NOT NULL,
  payload TEXT NOT NULL
) STRICT;
-- Answers who has what of which time without a look at the payloads.
CREATE INDEX order_payloads_by_order ON order_payloads (order_id, seq, received_at, source);

-- When the payload was received, where that was after the newest event; NULL: with it (updated_at).
ALTER TABLE orders ADD COLUMN payload_at TEXT;

-- Up to this seq only events of certain orders are still there: see `retention` in the configuration.
INSERT INTO marks (name, value) VALUES ('events.trimmed', 0);
-- 1 once an acknowledgement was deleted together with its order.
INSERT INTO marks (name, value) VALUES ('acks.used', 0);
