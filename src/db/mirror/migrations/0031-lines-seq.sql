-- The event with which an order's store, or what its lines take, last changed: what a POS booked as of an earlier event
-- was something else. NULL in orders of before: it may be their newest event.
ALTER TABLE orders ADD COLUMN lines_seq INTEGER;
