-- An acknowledgement that a person typed (`source` 'cli') says nothing of the store's POS.
DROP TRIGGER store_acknowledges;
CREATE TRIGGER store_acknowledges AFTER INSERT ON order_acks WHEN NEW.source <> 'cli' BEGIN
  INSERT INTO acknowledging_stores (store, first_at, last_at)
    SELECT coalesce(store_external_id, ''), NEW.acked_at, NEW.acked_at FROM orders
      WHERE order_id = NEW.order_id
        AND NOT EXISTS (SELECT 1 FROM acknowledging_stores WHERE store = coalesce(store_external_id, ''));
  UPDATE acknowledging_stores SET last_at = NEW.acked_at
    WHERE store IN (SELECT coalesce(store_external_id, '') FROM orders WHERE order_id = NEW.order_id);
END;

-- Stores of which all acknowledgements that are known were typed; one of which none is known stays.
DELETE FROM acknowledging_stores WHERE store IN (
  SELECT coalesce(o.store_external_id, '') FROM order_acks a JOIN orders o USING (order_id)
    GROUP BY 1 HAVING min(a.source = 'cli') = 1 AND min(a.acked_at) <= (
      SELECT s.first_at FROM acknowledging_stores s WHERE s.store = coalesce(o.store_external_id, '')));
UPDATE acknowledging_stores SET
  first_at = coalesce((SELECT min(acked_at) FROM order_acks JOIN orders USING (order_id)
    WHERE source <> 'cli' AND coalesce(store_external_id, '') = store), first_at),
  last_at = coalesce((SELECT max(acked_at) FROM order_acks JOIN orders USING (order_id)
    WHERE source <> 'cli' AND coalesce(store_external_id, '') = store), last_at)
  WHERE store IN (SELECT coalesce(store_external_id, '') FROM order_acks JOIN orders USING (order_id)
    WHERE source = 'cli');

-- At a hub: how the branch's acknowledgement was made there; 'branch': by its POS.
ALTER TABLE waiting_acks ADD COLUMN source TEXT NOT NULL DEFAULT 'branch';
