-- Place of a change in the feed of settled ones. A change that settles again, such as a refused one that a newer value takes the
-- place of, comes again with a higher one. NULL: it waits, or settled before this column.
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
