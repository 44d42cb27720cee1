-- Where a branch does not hold back, too, an order that came after the count and is over takes nothing: what it takes was
-- taken for sold until its rows went, and the stock was said to differ from then on.
DROP VIEW stock_ledger;
CREATE VIEW stock_ledger AS
SELECT c.*,
  max(0, round(c.counted_qty - c.reserved_qty - c.unheard_qty - c.safety_qty, 9)) AS wanted_qty,
  CASE WHEN c.call_id IS NULL AND c.is_moved = 0 AND c.unplaced_seq <= c.confirmed_seq
    THEN max(0, round(c.believed_qty - c.ordered_qty, 9)) END AS expected_qty
FROM (
  SELECT b.*,
    coalesce(
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = ''),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = ''), 0) AS safety_qty,
    CASE WHEN b.holds THEN
      (SELECT total(max(0, min(r.live, r.open))) FROM (
        SELECT sum(s.qty) AS live,
          sum(CASE WHEN s.booked_version IS NOT NULL AND s.seq <= b.counted_seq AND s.booked_version <= b.counted_version THEN 0
            WHEN s.held_until_ms <= b.counted_ms AND s.seq <= b.counted_seq THEN 0
            WHEN s.qty > 0 THEN s.qty
            WHEN s.seq > b.counted_seq THEN s.qty ELSE 0 END) AS open
        FROM stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id GROUP BY s.order_id) r)
    ELSE
      (SELECT total(max(0, r.qty)) FROM (
        SELECT sum(s.qty) AS qty FROM stock_steps s
        WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.counted_seq GROUP BY s.order_id) r)
    END AS reserved_qty,
    coalesce((SELECT max(0, k.missing_qty - (SELECT total(max(0, s.qty)) FROM stock_steps s
        WHERE s.sku = k.sku AND s.subsidiary_id = k.subsidiary_id AND s.seq > k.looked_seq))
      FROM stock_looks k WHERE k.sku = b.sku AND k.subsidiary_id = b.subsidiary_id), 0) AS unheard_qty,
    (SELECT total(s.qty) FROM stock_steps s
      WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.confirmed_seq) AS ordered_qty,
    EXISTS (SELECT 1 FROM stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id
      AND s.seq > b.confirmed_seq AND (s.is_first = 0 OR s.placed_ms <= b.confirmed_ms)) AS is_moved,
    (SELECT coalesce(max(o.seq), 0) FROM ledger_orders o WHERE o.is_unplaced = 1) AS unplaced_seq
  FROM (
    SELECT s.*, k.believed_qty, k.show, k.show_uncertain,
      coalesce(k.confirmed_seq, 0) AS confirmed_seq, coalesce(k.confirmed_ms, 0) AS confirmed_ms,
      EXISTS (SELECT 1 FROM holding_branches h WHERE h.subsidiary_id IN ('', s.subsidiary_id)) AS holds
    FROM stock_counts s LEFT JOIN stock_beliefs k USING (sku, subsidiary_id)) b) c;
