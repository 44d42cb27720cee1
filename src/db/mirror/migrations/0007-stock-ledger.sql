-- Stock as desired state: what the POS counted, what orders take, what the platform is believed to have.

-- Orders that take something of a stock, or may have since a confirmation; `takes`: 0 once cancelled or paid back.
CREATE TABLE ledger_orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  takes INTEGER NOT NULL,
  booked INTEGER NOT NULL,
  -- The earliest moment at which it may have been placed, by this machine's clock; 0: unknown.
  placed_ms INTEGER NOT NULL,
  -- Event with which it began to take, or came back to life; event with which what it takes changed or ended.
  live_since_seq INTEGER NOT NULL,
  changed_seq INTEGER NOT NULL,
  -- An item carries no id, and nobody knows its name: it may be any product.
  is_unplaced INTEGER NOT NULL DEFAULT 0,
  -- What it takes has to be looked up again in the catalogue.
  is_stale INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX ledger_orders_unplaced ON ledger_orders (live_since_seq, changed_seq) WHERE is_unplaced = 1;
CREATE INDEX ledger_orders_stale ON ledger_orders (order_id) WHERE is_stale = 1;

CREATE TABLE order_takings (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  order_id TEXT NOT NULL,
  qty REAL NOT NULL,
  PRIMARY KEY (sku, subsidiary_id, order_id)
) WITHOUT ROWID;
CREATE INDEX order_takings_by_order ON order_takings (order_id);

-- The last count of each stock, and the call that carries it.
CREATE TABLE stock_counts (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  counted_qty REAL NOT NULL,
  -- Newest event of the order feed when it was handed over; version and change of the hand-over.
  counted_seq INTEGER NOT NULL,
  counted_version INTEGER NOT NULL,
  change_id INTEGER NOT NULL,
  -- JSON: how the platform is told which stock is meant.
  address TEXT NOT NULL,
  -- The platform refused this version or a person gave it up: do not insist.
  refused_version INTEGER NOT NULL DEFAULT 0,
  call_id INTEGER,
  call_qty REAL,
  call_seq INTEGER,
  -- How often it was sent again without a clear answer.
  attempts INTEGER NOT NULL DEFAULT 0,
  -- Something happened since it was last looked at.
  dirty INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;
CREATE INDEX stock_counts_dirty ON stock_counts (sku, subsidiary_id) WHERE dirty = 1;
CREATE INDEX stock_counts_under_way ON stock_counts (call_id) WHERE call_id IS NOT NULL;

-- When the platform last said or took a quantity; whether its visibility is in doubt, which `uncertain` leaves out.
ALTER TABLE stocks ADD COLUMN confirmed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stocks ADD COLUMN show_uncertain INTEGER NOT NULL DEFAULT 0;
UPDATE stocks SET show_uncertain = uncertain;
ALTER TABLE sweeps ADD COLUMN completed_ms INTEGER NOT NULL DEFAULT 0;
UPDATE sweeps SET completed_ms = CAST(strftime('%s', completed_at) AS INTEGER) * 1000;

-- What the platform is believed to have of each stock by the last word on it: a sweep speaks for its whole branch.
CREATE VIEW stock_beliefs AS
SELECT k.sku, k.subsidiary_id, k.show, k.show_uncertain,
  CASE WHEN k.uncertain = 0 THEN k.qty + 0 END AS believed_qty,
  max(k.confirmed_seq, coalesce((SELECT max(w.as_of_seq) FROM sweeps w WHERE w.subsidiary_id = k.subsidiary_id), 0))
    AS confirmed_seq,
  max(k.confirmed_ms, coalesce((SELECT max(w.completed_ms) FROM sweeps w WHERE w.subsidiary_id = k.subsidiary_id), 0))
    AS confirmed_ms
FROM stocks k;

-- `wanted_qty`: the last count less what orders took that it cannot contain: those not booked, and those heard of after
-- it. `expected_qty`: what the platform has by itself now; NULL where nobody can tell, since an order was edited or
-- ended, or was placed before the quantity was confirmed and heard of after that.
CREATE VIEW stock_ledger AS
SELECT c.*,
  max(0, round(c.counted_qty - c.reserved_qty, 9)) AS wanted_qty,
  CASE WHEN c.call_id IS NULL AND c.is_moved = 0 AND c.unplaced_seq <= c.confirmed_seq
    THEN max(0, round(c.believed_qty - c.ordered_qty, 9)) END AS expected_qty
FROM (
  SELECT b.*,
    (SELECT total(t.qty) FROM order_takings t JOIN ledger_orders o USING (order_id)
      WHERE t.sku = b.sku AND t.subsidiary_id = b.subsidiary_id
        AND o.takes = 1 AND (o.booked = 0 OR o.live_since_seq > b.counted_seq)) AS reserved_qty,
    (SELECT total(t.qty) FROM order_takings t JOIN ledger_orders o USING (order_id)
      WHERE t.sku = b.sku AND t.subsidiary_id = b.subsidiary_id AND o.live_since_seq > b.confirmed_seq) AS ordered_qty,
    EXISTS (SELECT 1 FROM order_takings t JOIN ledger_orders o USING (order_id)
      WHERE t.sku = b.sku AND t.subsidiary_id = b.subsidiary_id AND (o.changed_seq > b.confirmed_seq
        OR (o.live_since_seq > b.confirmed_seq AND o.placed_ms <= b.confirmed_ms))) AS is_moved,
    (SELECT coalesce(max(max(o.live_since_seq, o.changed_seq)), 0) FROM ledger_orders o WHERE o.is_unplaced = 1)
      AS unplaced_seq
  FROM (
    SELECT s.*, k.believed_qty, k.show, k.show_uncertain,
      coalesce(k.confirmed_seq, 0) AS confirmed_seq, coalesce(k.confirmed_ms, 0) AS confirmed_ms
    FROM stock_counts s LEFT JOIN stock_beliefs k USING (sku, subsidiary_id)) b) c;

-- From before: orders that were not booked, and the counts that were sent without them.
INSERT INTO marks (name, value)
  SELECT 'ledger.seen', value FROM marks WHERE name = 'orders.seen';
INSERT INTO marks (name, value)
  SELECT 'ledger.from', max(value, 0) FROM marks WHERE name = 'orders.seen';
INSERT INTO marks (name, value)
  SELECT 'ledger.holds', value >= 0 FROM marks WHERE name = 'orders.seen';
INSERT INTO marks (name, value) VALUES ('ledger.swept', 0);
INSERT INTO ledger_orders (order_id, takes, booked, placed_ms, live_since_seq, changed_seq, is_stale)
  SELECT u.order_id,
    o.status IS NULL OR o.status NOT IN ('cancel', 'refund', 'payment-canceled'),
    u.acknowledged, 0, u.first_seq, 0, 1
  FROM unbooked_orders u JOIN orders o USING (order_id);
INSERT INTO stock_counts (sku, subsidiary_id, counted_qty, counted_seq, counted_version, change_id, address, dirty)
  SELECT h.sku, h.subsidiary_id, json_extract(h.body, '$.qty'), h.as_of_seq, h.version,
    coalesce((SELECT max(o.change_id) FROM outbox o
      WHERE o.kind = 'stock' AND o.conflict_key = h.conflict_key AND o.state IN ('done', 'sending')), 0),
    json_remove(h.body, '$.qty', '$.show'), 1
  FROM held_back_counts h
  WHERE h.sku IS NOT NULL AND h.subsidiary_id IS NOT NULL AND json_extract(h.body, '$.qty') IS NOT NULL;
DROP TABLE unbooked_orders;
DROP TABLE held_back_counts;
DELETE FROM marks WHERE name IN ('orders.seen', 'orders.corrected');
