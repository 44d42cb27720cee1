-- The id of a modifier itself, beside that of its option.
ALTER TABLE order_item_modifiers ADD COLUMN modifier_external_id TEXT;
-- Whether the sums that an order states hold: 1: they do not; 0: they do; NULL: not all of them were there.
ALTER TABLE orders ADD COLUMN sums_differ INTEGER;
-- The platform writes '' where there is no time.
UPDATE orders SET delivery_time = NULL WHERE delivery_time = '';
