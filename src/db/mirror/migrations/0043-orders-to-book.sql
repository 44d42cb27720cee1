-- An index had the name that the view for a POS takes.
DROP INDEX orders_to_book;
CREATE INDEX orders_waiting ON orders (to_book_since)
  WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');

-- Orders that are paid and not cancelled, and that no POS of their store has acknowledged, or that take something else
-- since, of which no count has said yet that it contains that. `acked_at`: when that POS acknowledged it
-- as it was before.
CREATE VIEW orders_unbooked AS
SELECT o.*,
  (SELECT max(a.acked_at) FROM order_acks a
    WHERE a.order_id = o.order_id AND a.branch IN ('', coalesce(o.store_external_id, ''))) AS acked_at
FROM orders o
WHERE (o.status IS NULL OR o.status NOT IN ('pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled'))
  AND NOT EXISTS (SELECT 1 FROM order_acks a
    WHERE a.order_id = o.order_id AND a.branch IN ('', coalesce(o.store_external_id, ''))
      AND (a.edited_seq IS NULL OR NOT EXISTS (
        SELECT 1 FROM stock_steps s LEFT JOIN stock_counts c ON c.sku = s.sku AND c.subsidiary_id = s.subsidiary_id
        WHERE s.order_id = o.order_id AND s.booked_version IS NULL AND s.qty <> 0
          AND NOT coalesce(s.held_until_ms <= c.counted_ms AND s.seq <= c.counted_seq, 0))));

-- What a POS is to prepare and to book now: those of them whose life has not ended.
CREATE VIEW orders_to_book AS
SELECT * FROM orders_unbooked
WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');
