-- When an order's life ended, and when its customer was forgotten; NULL: not so far.
ALTER TABLE orders ADD COLUMN ended_at TEXT;
ALTER TABLE orders ADD COLUMN forgotten_at TEXT;
UPDATE orders SET ended_at = updated_at
  WHERE status IN ('dispatched', 'payment-canceled', 'cancel', 'refund');
CREATE INDEX orders_with_customer ON orders (ended_at) WHERE ended_at IS NOT NULL AND forgotten_at IS NULL;
