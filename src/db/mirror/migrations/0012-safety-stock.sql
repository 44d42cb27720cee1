-- What is kept back of each stock. '' stands for every product and for every branch; where several rows speak for a
-- stock, its product says more than its branch, and both say more than one. Rows without a product are those of the
-- configuration.
CREATE TABLE stock_safety (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  qty REAL NOT NULL,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;

-- While the hold-back is off, an order is no reason to send a stock again: the next count is.
UPDATE stock_counts SET dirty = 0
  WHERE dirty = 1 AND NOT EXISTS (SELECT 1 FROM marks WHERE name = 'ledger.holds' AND value = 1);

-- As before, and less what is kept back: `safety_qty`.
DROP VIEW stock_ledger;
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
