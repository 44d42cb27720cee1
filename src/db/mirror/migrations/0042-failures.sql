-- Why the last tries of a flow failed, since when for that one reason, and how often in a row.
ALTER TABLE freshness ADD COLUMN failure_code TEXT;
ALTER TABLE freshness ADD COLUMN failing_since TEXT;
ALTER TABLE freshness ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
-- These are told by the age of the orders and by what waits; nobody notes them any more.
DELETE FROM alarms WHERE key IN ('orders.stale', 'outbox.stuck');
