-- A trigger on each INSERT of an order makes SQLite open a journal for the statement, which costs more than the row.
-- The merge of a new order does this now (orders/order-rows.ts).
DROP TRIGGER acknowledged_order_comes;
