-- What a person assigned to a branch at the hub. `by_hand`: the store is not in the configuration.
ALTER TABLE feed_stores ADD COLUMN by_hand INTEGER NOT NULL DEFAULT 0;
-- The branch that the order was given to; NULL while nobody has decided.
ALTER TABLE unassigned_orders ADD COLUMN branch TEXT;
