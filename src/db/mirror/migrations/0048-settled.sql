-- `settled_seq` numbers the changes in the order in which they settle. A change that settles again, such as a refused
-- change that a newer value supersedes, gets a higher number. NULL while a change waits, or if it settled before this
-- column existed.
ALTER TABLE outbox ADD COLUMN settled_seq INTEGER;

CREATE UNIQUE INDEX outbox_settled_seq ON outbox (settled_seq) WHERE settled_seq IS NOT NULL;

CREATE TRIGGER outbox_settles AFTER UPDATE OF state ON outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded') AND NEW.state <> OLD.state
BEGIN
  INSERT INTO marks (name, value) SELECT 'outbox.settled', 0
    WHERE NOT EXISTS (SELECT 1 FROM marks WHERE name = 'outbox.settled');
  UPDATE marks SET value = value + 1 WHERE name = 'outbox.settled';
  UPDATE outbox SET settled_seq =
    (SELECT value FROM marks WHERE name = 'outbox.settled') WHERE change_id = NEW.change_id;
END;

CREATE TRIGGER outbox_begins_settled AFTER INSERT ON outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded')
BEGIN
  INSERT INTO marks (name, value) SELECT 'outbox.settled', 0
    WHERE NOT EXISTS (SELECT 1 FROM marks WHERE name = 'outbox.settled');
  UPDATE marks SET value = value + 1 WHERE name = 'outbox.settled';
  UPDATE outbox SET settled_seq =
    (SELECT value FROM marks WHERE name = 'outbox.settled') WHERE change_id = NEW.change_id;
END;
