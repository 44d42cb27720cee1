-- When an order was first seen in a status that the POS is to book: neither unpaid nor cancelled. NULL: not yet.
ALTER TABLE orders ADD COLUMN to_book_since TEXT;
UPDATE orders SET to_book_since = updated_at
  WHERE (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))
    AND (status IS NULL OR status NOT IN ('pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled'));

-- Which orders wait to be acknowledged, and whether anything is acknowledged here at all.
CREATE INDEX orders_to_book ON orders (to_book_since)
  WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');
CREATE INDEX order_acks_by_time ON order_acks (acked_at);
