-- What the mirror of a branch of a hub has beside that of a store.

-- The one row is how far this branch has taken its feed, and the uplink on which its own changes go up.
CREATE TABLE _link (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  epoch TEXT,
  mark INTEGER NOT NULL DEFAULT 0,
  -- JSON array of the epochs that this branch will not follow again.
  left_epochs TEXT NOT NULL DEFAULT '[]',
  line TEXT NOT NULL,
  last_u INTEGER NOT NULL DEFAULT 0
);

-- A row is a change or an acknowledgement that has a number of the uplink, until the hub has it.
CREATE TABLE _up_items (
  u INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('stock', 'product', 'ack')),
  change_id INTEGER,
  body TEXT NOT NULL
);

-- A row is an order whose acknowledgement has no number of the uplink yet.
CREATE TABLE _up_acks (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- A statement's own conflict clause overrides that of its triggers' statements, so these look before they insert.
CREATE TRIGGER acks_go_up AFTER INSERT ON _order_acks WHEN EXISTS (SELECT 1 FROM _link) BEGIN
  INSERT INTO _up_acks (order_id)
    SELECT NEW.order_id WHERE NOT EXISTS (SELECT 1 FROM _up_acks WHERE order_id = NEW.order_id);
END;

CREATE TRIGGER acks_go_up_again AFTER UPDATE OF acked_at ON _order_acks
WHEN EXISTS (SELECT 1 FROM _link) BEGIN
  INSERT INTO _up_acks (order_id)
    SELECT NEW.order_id WHERE NOT EXISTS (SELECT 1 FROM _up_acks WHERE order_id = NEW.order_id);
END;

-- A row is an order whose customer was forgotten here while the hub still sends the customer's data.
CREATE TABLE _forgotten_up (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- A row is an order that the hub gave to another branch after this one had it.
CREATE TABLE _orders_away (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

INSERT INTO marks (name, value) VALUES ('role.branch', 1);
