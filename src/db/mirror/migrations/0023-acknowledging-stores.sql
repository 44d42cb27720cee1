-- Stores whose POS acknowledges orders. `store`: as orders name it, '' for none. `first_at`, `last_at`: of its
-- acknowledgements, also of those that went with their orders.
CREATE TABLE acknowledging_stores (
  store TEXT NOT NULL PRIMARY KEY,
  first_at TEXT NOT NULL,
  last_at TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO acknowledging_stores (store, first_at, last_at)
  SELECT coalesce(store_external_id, '') AS store, min(acked_at), max(acked_at)
    FROM order_acks JOIN orders USING (order_id) GROUP BY 1;
-- Where all that was acknowledged is gone, nobody knows whose it was.
INSERT INTO acknowledging_stores (store, first_at, last_at)
  SELECT DISTINCT coalesce(store_external_id, ''), '2000-01-01T00:00:00.000Z', '2000-01-01T00:00:00.000Z' FROM orders
    WHERE EXISTS (SELECT 1 FROM marks WHERE name = 'acks.used' AND value = 1)
      AND NOT EXISTS (SELECT 1 FROM order_acks);

CREATE TRIGGER store_acknowledges AFTER INSERT ON order_acks BEGIN
  INSERT INTO acknowledging_stores (store, first_at, last_at)
    SELECT coalesce(store_external_id, ''), NEW.acked_at, NEW.acked_at FROM orders
      WHERE order_id = NEW.order_id
        AND NOT EXISTS (SELECT 1 FROM acknowledging_stores WHERE store = coalesce(store_external_id, ''));
  UPDATE acknowledging_stores SET last_at = NEW.acked_at
    WHERE store IN (SELECT coalesce(store_external_id, '') FROM orders WHERE order_id = NEW.order_id);
END;

-- An acknowledgement may be there before its order.
CREATE TRIGGER acknowledged_order_comes AFTER INSERT ON orders
  WHEN EXISTS (SELECT 1 FROM order_acks WHERE order_id = NEW.order_id) BEGIN
  INSERT INTO acknowledging_stores (store, first_at, last_at)
    SELECT coalesce(NEW.store_external_id, ''), acked_at, acked_at FROM order_acks
      WHERE order_id = NEW.order_id
        AND NOT EXISTS (SELECT 1 FROM acknowledging_stores WHERE store = coalesce(NEW.store_external_id, ''));
END;
