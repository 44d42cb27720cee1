-- A company with a tillsync in each branch. All of it is empty in a store of one tillsync.

-- At the hub. `epoch`: of which life of this database the numbers of the feed are; `stream`: the server's place for
-- them, so that one that was made anew is noticed.
CREATE TABLE hub (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  epoch TEXT NOT NULL,
  stream TEXT
);

-- `last_n`: the newest number given; `snapshot_n`: where the last snapshot begins. `line`, `up_to`: how far what the
-- branch hands up was taken in, and of which series of numbers that is.
CREATE TABLE feed_branches (
  branch TEXT NOT NULL PRIMARY KEY,
  may_price INTEGER NOT NULL DEFAULT 0,
  last_n INTEGER NOT NULL DEFAULT 0,
  snapshot_n INTEGER NOT NULL DEFAULT 0,
  snapshot_at TEXT,
  line TEXT,
  up_to INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The ids by which orders name a branch.
CREATE TABLE feed_stores (
  store_id TEXT NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL
) WITHOUT ROWID;

-- What goes down to each branch, numbered without a gap.
CREATE TABLE feed (
  feed_id INTEGER PRIMARY KEY,
  branch TEXT NOT NULL,
  n INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('order', 'forget', 'result', 'snapshot-begin', 'snapshot-end')),
  -- Of which order it is, so that its customer can be forgotten here too.
  order_id TEXT,
  body TEXT NOT NULL,
  written_at TEXT NOT NULL,
  published INTEGER NOT NULL DEFAULT 0,
  UNIQUE (branch, n)
);
CREATE INDEX feed_by_order ON feed (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX feed_unpublished ON feed (feed_id) WHERE published = 0;

-- Orders that name no branch of the configuration.
CREATE TABLE unassigned_orders (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;

-- Which change of which branch a change of the outbox carries. `settled`: its end is to go down.
CREATE TABLE handed_up (
  change_id INTEGER PRIMARY KEY,
  branch TEXT NOT NULL,
  branch_change_id INTEGER NOT NULL,
  settled INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX handed_up_settled ON handed_up (change_id) WHERE settled = 1;
-- Readers parse triggers too: no word in them is younger than SQLite 3.22.
CREATE TRIGGER handed_up_settles AFTER UPDATE OF state ON outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded') AND NEW.state <> OLD.state
BEGIN
  UPDATE handed_up SET settled = 1 WHERE change_id = NEW.change_id;
END;

-- At a branch. `mark`: the newest number of the hub's feed that is in this mirror, of the life `epoch`; `line`, `last_u`:
-- the series of numbers under which changes and acknowledgements go up, and the newest one given.
CREATE TABLE link (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  epoch TEXT,
  mark INTEGER NOT NULL DEFAULT 0,
  line TEXT NOT NULL,
  last_u INTEGER NOT NULL DEFAULT 0
);

-- Under way to the hub, until it says that it has them.
CREATE TABLE up_items (
  u INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('stock', 'product', 'ack')),
  change_id INTEGER,
  body TEXT NOT NULL
);

-- Acknowledgements that have not gone up yet.
CREATE TABLE up_acks (
  order_id TEXT NOT NULL PRIMARY KEY
) WITHOUT ROWID;
CREATE TRIGGER acks_go_up AFTER INSERT ON order_acks WHEN EXISTS (SELECT 1 FROM link) BEGIN
  INSERT OR IGNORE INTO up_acks (order_id) VALUES (NEW.order_id);
END;
