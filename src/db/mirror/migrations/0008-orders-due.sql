-- Scheduled orders that are not over yet, with the columns of `orders` and what a POS asks next: when each is due, and
-- whether the POS has it. `due_at` is NULL where the platform told no time that could be read; then `scheduled_for` has
-- the text as sent.
CREATE VIEW orders_due AS
SELECT s.*,
  (CAST(strftime('%s', s.due_at) AS INTEGER) - CAST(strftime('%s', 'now') AS INTEGER)) / 60 AS due_in_minutes,
  (SELECT a.acked_at FROM order_acks a WHERE a.order_id = s.order_id) AS acked_at
FROM (
  SELECT o.*,
    CASE WHEN scheduled_for GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*Z' THEN scheduled_for END AS due_at
  FROM orders o
  WHERE (is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL))
    AND (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))) s;

CREATE INDEX orders_scheduled ON orders (scheduled_for)
  WHERE (is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL))
    AND (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'));
