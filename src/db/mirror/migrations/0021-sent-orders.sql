-- At a hub: the branches that an order went down to. `moved`: by its newest step it is not of this branch any more; the
-- branch hears of it all the same, until its end and until its customer is forgotten.
CREATE TABLE sent_orders (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  moved INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;
CREATE INDEX sent_orders_moved ON sent_orders (branch) WHERE moved = 1;

-- As far as it is known: whose each order is now, and what the feeds have of it.
INSERT INTO sent_orders (order_id, branch)
  SELECT o.order_id, s.branch FROM feed_stores s JOIN orders o ON o.store_external_id = s.store_id
    WHERE NOT EXISTS (SELECT 1 FROM unassigned_orders u WHERE u.order_id = o.order_id AND u.branch NOT NULL)
  UNION SELECT order_id, branch FROM unassigned_orders JOIN orders USING (order_id) WHERE branch NOT NULL
  UNION SELECT order_id, branch FROM feed JOIN orders USING (order_id) WHERE kind = 'order';
UPDATE sent_orders SET moved = 1 WHERE branch IS NOT (
  SELECT coalesce(u.branch, s.branch) FROM orders o LEFT JOIN unassigned_orders u USING (order_id)
    LEFT JOIN feed_stores s ON s.store_id = o.store_external_id WHERE o.order_id = sent_orders.order_id);
