-- Branches in which what is not booked is taken off counts, by subsidiary_id; '' for every branch.
CREATE TABLE holding_branches (
  subsidiary_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
INSERT INTO holding_branches SELECT '' FROM marks WHERE name = 'ledger.holds' AND value = 1;
DELETE FROM marks WHERE name = 'ledger.holds';

-- `reserved_qty`: what the last count cannot contain. Where the branch holds back, of each order what is open, but never
-- more than it takes now; a cut that the count may contain gives nothing back. Elsewhere the POS counts what it has, and
-- all that was ordered after the count. `expected_qty`: what the platform has by itself now; NULL where nobody can tell,
-- since an order changed, or was placed before the quantity was confirmed and heard of after that.
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
    CASE WHEN b.holds THEN
      (SELECT total(max(0, min(r.live, r.open))) FROM (
        SELECT sum(s.qty) AS live,
          sum(CASE WHEN s.booked_version IS NOT NULL AND s.seq <= b.counted_seq AND s.booked_version <= b.counted_version THEN 0
            WHEN s.held_until_ms <= b.counted_ms AND s.seq <= b.counted_seq THEN 0
            WHEN s.qty > 0 THEN s.qty
            WHEN s.seq > b.counted_seq THEN s.qty ELSE 0 END) AS open
        FROM stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id GROUP BY s.order_id) r)
    ELSE
      (SELECT total(max(0, s.qty)) FROM stock_steps s
        WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.counted_seq)
    END AS reserved_qty,
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
