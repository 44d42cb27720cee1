-- What an order takes of a stock is a row of steps: facts, each heard once and booked once. The catalogue and the
-- configuration of a later day change none of them.
CREATE TABLE stock_steps (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  order_id TEXT NOT NULL,
  -- Event of the order feed with which it was heard; 0: from before the ledger.
  seq INTEGER NOT NULL,
  -- Above 0 it takes, below 0 it gives back: cut, cancelled, moved to another store. 0: the order changed elsewhere,
  -- and the platform may have given something back here.
  qty REAL NOT NULL,
  -- NULL: the POS has not acknowledged it. Else the newest hand-over of the stock at that time, 0 for none: a count
  -- contains the step only if it is at least as new.
  booked_version INTEGER,
  -- The earliest moment at which the order may have been placed, by this machine's clock; 0: unknown.
  placed_ms INTEGER NOT NULL,
  -- The order's first event: the platform took it off by itself.
  is_first INTEGER NOT NULL,
  -- Set where the order was acknowledged before: a count handed over after this time contains the step all the same.
  held_until_ms INTEGER,
  PRIMARY KEY (sku, subsidiary_id, order_id, seq)
) WITHOUT ROWID;
CREATE INDEX stock_steps_by_order ON stock_steps (order_id);

-- Until now an order had one quantity of each stock.
INSERT INTO stock_steps (sku, subsidiary_id, order_id, seq, qty, booked_version, placed_ms, is_first)
  SELECT t.sku, t.subsidiary_id, order_id, o.live_since_seq, t.qty, CASE WHEN o.booked = 1 THEN 0 END, o.placed_ms, 1
    FROM order_takings t JOIN ledger_orders o USING (order_id);
INSERT INTO stock_steps (sku, subsidiary_id, order_id, seq, qty, booked_version, placed_ms, is_first)
  SELECT t.sku, t.subsidiary_id, order_id, max(o.changed_seq, o.live_since_seq + 1),
    CASE WHEN o.takes = 1 THEN 0 ELSE -t.qty END, CASE WHEN o.booked = 1 THEN 0 END, 0, 0
    FROM order_takings t JOIN ledger_orders o USING (order_id) WHERE o.takes = 0 OR o.changed_seq > o.live_since_seq;

-- Orders that the ledger follows. `seq`: the newest event that was taken in; `first_seq`: its first one, 0 where that is
-- not known; `places`: JSON, the stocks of each line as
-- they were found when it was first heard. `is_unplaced`: a line's product is not known, so it may be any.
CREATE TABLE ledger_orders_new (
  order_id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  takes INTEGER NOT NULL,
  placed_ms INTEGER NOT NULL,
  places TEXT NOT NULL,
  is_unplaced INTEGER NOT NULL DEFAULT 0,
  is_stale INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO ledger_orders_new (order_id, seq, first_seq, takes, placed_ms, places, is_unplaced, is_stale)
  SELECT order_id, max(live_since_seq, changed_seq), live_since_seq, takes, placed_ms, '{}', is_unplaced,
    is_stale AND takes FROM ledger_orders l
    -- Long part of every count, and of which stock nobody has looked.
    WHERE NOT (booked = 1 AND is_stale = 1 AND NOT EXISTS (SELECT 1 FROM order_acks a WHERE a.order_id = l.order_id)
      AND NOT EXISTS (SELECT 1 FROM order_takings t WHERE t.order_id = l.order_id));

DROP VIEW stock_ledger;
DROP TABLE order_takings;
DROP TABLE ledger_orders;
ALTER TABLE ledger_orders_new RENAME TO ledger_orders;
CREATE INDEX ledger_orders_unplaced ON ledger_orders (seq) WHERE is_unplaced = 1;
CREATE INDEX ledger_orders_stale ON ledger_orders (order_id) WHERE is_stale = 1;

-- When the count was handed over, by this machine's clock; the newest hand-over of the stock that never became a count,
-- since a person gave it up.
ALTER TABLE stock_counts ADD COLUMN counted_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stock_counts ADD COLUMN dropped_version INTEGER NOT NULL DEFAULT 0;
UPDATE stock_counts SET dirty = 0 WHERE dirty = 1 AND counted_version <= refused_version;

-- `reserved_qty`: what the last count cannot contain: of each order what is open, but never more than it takes now. A
-- cut that the count may contain gives nothing back. `expected_qty`: what the platform has by itself now; NULL where
-- nobody can tell, since an order changed, or was placed before the quantity was confirmed and heard of after that.
CREATE VIEW stock_ledger AS
SELECT c.*,
  max(0, round(c.counted_qty - c.reserved_qty - c.safety_qty, 9)) AS wanted_qty,
  CASE WHEN c.call_id IS NULL AND c.is_moved = 0 AND c.unplaced_seq <= c.confirmed_seq
    THEN max(0, round(c.believed_qty - c.ordered_qty, 9)) END AS expected_qty
FROM (
  SELECT b.*,
    coalesce(
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = ''),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = ''), 0) AS safety_qty,
    (SELECT total(max(0, min(r.live, r.open))) FROM (
      SELECT sum(s.qty) AS live,
        sum(CASE WHEN s.booked_version IS NOT NULL AND s.seq <= b.counted_seq AND s.booked_version <= b.counted_version THEN 0
          WHEN s.held_until_ms <= b.counted_ms AND s.seq <= b.counted_seq THEN 0
          WHEN s.qty > 0 THEN s.qty
          WHEN s.seq > b.counted_seq THEN s.qty ELSE 0 END) AS open
      FROM stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id GROUP BY s.order_id) r) AS reserved_qty,
    (SELECT total(s.qty) FROM stock_steps s
      WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.confirmed_seq) AS ordered_qty,
    EXISTS (SELECT 1 FROM stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id
      AND s.seq > b.confirmed_seq AND (s.is_first = 0 OR s.placed_ms <= b.confirmed_ms)) AS is_moved,
    (SELECT coalesce(max(o.seq), 0) FROM ledger_orders o WHERE o.is_unplaced = 1) AS unplaced_seq
  FROM (
    SELECT s.*, k.believed_qty, k.show, k.show_uncertain,
      coalesce(k.confirmed_seq, 0) AS confirmed_seq, coalesce(k.confirmed_ms, 0) AS confirmed_ms
    FROM stock_counts s LEFT JOIN stock_beliefs k USING (sku, subsidiary_id)) b) c;

-- An acknowledgement is of an order in one store, as of an event. `branch`: the store as the order names it, '' for
-- none; `seq`: NULL while the order has not been heard of; `edited_seq`: the order changed after it with this event.
DROP TRIGGER acks_go_up;
DROP TRIGGER store_acknowledges;
CREATE TABLE order_acks_new (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  acked_at TEXT NOT NULL,
  source TEXT NOT NULL,
  seq INTEGER,
  edited_seq INTEGER,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;
INSERT INTO order_acks_new (order_id, branch, acked_at, source, seq)
  SELECT a.order_id, coalesce(o.store_external_id, ''), a.acked_at, a.source, o.seq
    FROM order_acks a LEFT JOIN orders o USING (order_id);
DROP VIEW orders_due;
DROP TABLE order_acks;
ALTER TABLE order_acks_new RENAME TO order_acks;
CREATE VIEW orders_due AS
SELECT s.*,
  (CAST(strftime('%s', s.due_at) AS INTEGER) - CAST(strftime('%s', 'now') AS INTEGER)) / 60 AS due_in_minutes,
  (SELECT max(a.acked_at) FROM order_acks a WHERE a.order_id = s.order_id) AS acked_at
FROM (
  SELECT o.*,
    CASE WHEN scheduled_for GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*Z' THEN scheduled_for END AS due_at
  FROM orders o
  WHERE (is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL))
    AND (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))) s;
CREATE INDEX order_acks_by_time ON order_acks (acked_at);
CREATE TRIGGER store_acknowledges AFTER INSERT ON order_acks WHEN NEW.source <> 'cli' BEGIN
  INSERT INTO acknowledging_stores (store, first_at, last_at)
    SELECT coalesce(store_external_id, ''), NEW.acked_at, NEW.acked_at FROM orders
      WHERE order_id = NEW.order_id
        AND NOT EXISTS (SELECT 1 FROM acknowledging_stores WHERE store = coalesce(store_external_id, ''));
  UPDATE acknowledging_stores SET last_at = NEW.acked_at
    WHERE store IN (SELECT coalesce(store_external_id, '') FROM orders WHERE order_id = NEW.order_id);
END;
CREATE TRIGGER acks_go_up AFTER INSERT ON order_acks WHEN EXISTS (SELECT 1 FROM link) BEGIN
  INSERT OR IGNORE INTO up_acks (order_id) VALUES (NEW.order_id);
END;
CREATE TRIGGER acks_go_up_again AFTER UPDATE OF acked_at ON order_acks
WHEN EXISTS (SELECT 1 FROM link) BEGIN
  INSERT OR IGNORE INTO up_acks (order_id) VALUES (NEW.order_id);
END;

-- At a hub: when the newest event was observed that the branch had heard of the order; NULL: it did not say.
ALTER TABLE waiting_acks ADD COLUMN as_of TEXT;

DELETE FROM marks WHERE name = 'ledger.swept';
