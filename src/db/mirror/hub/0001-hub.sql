-- What the mirror of a hub has beside that of a store. The words epoch, n, mark, line and u are
-- those of docs/architecture.md.

-- The one row is this hub, and which life of its database the feeds are of.
CREATE TABLE _hub (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  epoch TEXT NOT NULL,
  stream TEXT,
  doubted_by TEXT,
  doubted_at TEXT,
  restored_at TEXT
);

-- A row is a branch with its feed, its uplink and the numbers that its own order feed may give out.
CREATE TABLE _feed_branches (
  branch TEXT NOT NULL PRIMARY KEY,
  subsidiary_id TEXT,
  may_price INTEGER NOT NULL DEFAULT 0,
  epoch TEXT,
  last_n INTEGER NOT NULL DEFAULT 0,
  snapshot_n INTEGER NOT NULL DEFAULT 0,
  snapshot_at TEXT,
  snapshot_stage TEXT,
  snapshot_seq INTEGER,
  snapshot_after,
  catalog_key TEXT,
  catalog_rev INTEGER NOT NULL DEFAULT 0,
  line TEXT,
  up_to INTEGER NOT NULL DEFAULT 0,
  seq INTEGER NOT NULL DEFAULT 0,
  leased_seq INTEGER NOT NULL DEFAULT 0,
  stopped_seq INTEGER
) WITHOUT ROWID;

CREATE INDEX feed_branches_by_subsidiary ON _feed_branches (subsidiary_id) WHERE subsidiary_id IS NOT NULL;

CREATE INDEX feed_branches_in_snapshot ON _feed_branches (branch) WHERE snapshot_stage IS NOT NULL;

-- A row is a store, as orders name it, with the branch to which its orders go.
CREATE TABLE _feed_stores (
  store_id TEXT NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL,
  by_hand INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A row is a store of a branch that is no longer configured, which gets it back if it is configured again.
CREATE TABLE _left_stores (
  store_id TEXT NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL,
  by_hand INTEGER NOT NULL
) WITHOUT ROWID;

-- A row is an order whose store is of no branch, with the branch that a person gave it.
CREATE TABLE _unassigned_orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  branch TEXT
) WITHOUT ROWID;

-- A row is an order that a branch was sent; `moved` is 1 once it is another branch's.
CREATE TABLE _sent_orders (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  moved INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;

CREATE INDEX sent_orders_moved ON _sent_orders (branch) WHERE moved = 1;

-- A row is an entry of a branch's feed.
CREATE TABLE _feed (
  feed_id INTEGER PRIMARY KEY,
  branch TEXT NOT NULL,
  n INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('order', 'forget', 'result', 'catalog', 'snapshot-begin', 'snapshot-end')),
  -- Of which order it is, so that its customer can be forgotten here too.
  order_id TEXT,
  body TEXT NOT NULL,
  written_at TEXT NOT NULL,
  published INTEGER NOT NULL DEFAULT 0,
  UNIQUE (branch, n)
);

CREATE INDEX feed_by_order ON _feed (order_id) WHERE order_id IS NOT NULL;

CREATE INDEX feed_unpublished ON _feed (feed_id) WHERE published = 0;

-- A row is a product that changed for a branch, or for all of them where the branch is ''.
CREATE TABLE _catalog_news (
  rev INTEGER PRIMARY KEY AUTOINCREMENT,
  branch TEXT NOT NULL,
  product_id TEXT NOT NULL,
  UNIQUE (branch, product_id)
);

CREATE INDEX catalog_news_by_branch ON _catalog_news (branch, rev);

CREATE TRIGGER catalog_news_once BEFORE INSERT ON _catalog_news BEGIN
  DELETE FROM _catalog_news WHERE branch = NEW.branch AND product_id = NEW.product_id;
END;

CREATE TRIGGER products_are_new AFTER INSERT ON _products WHEN EXISTS (SELECT 1 FROM _hub) BEGIN
  INSERT INTO _catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;

CREATE TRIGGER products_change AFTER UPDATE OF name, category, show, vanished_at ON _products
WHEN EXISTS (SELECT 1 FROM _hub) AND (NEW.name IS NOT OLD.name OR NEW.category IS NOT OLD.category
  OR NEW.show IS NOT OLD.show OR NEW.vanished_at IS NOT OLD.vanished_at)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;

CREATE TRIGGER skus_are_new AFTER INSERT ON _skus WHEN EXISTS (SELECT 1 FROM _hub) BEGIN
  INSERT INTO _catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;

CREATE TRIGGER skus_change AFTER UPDATE OF product_id, barcode, price, with_discount, discount, show ON _skus
WHEN EXISTS (SELECT 1 FROM _hub) AND (NEW.product_id IS NOT OLD.product_id OR NEW.barcode IS NOT OLD.barcode
  OR NEW.price IS NOT OLD.price OR NEW.with_discount IS NOT OLD.with_discount
  OR NEW.discount IS NOT OLD.discount OR NEW.show IS NOT OLD.show)
BEGIN
  INSERT INTO _catalog_news (branch, product_id)
    SELECT '', OLD.product_id UNION SELECT '', NEW.product_id;
END;

CREATE TRIGGER skus_go AFTER DELETE ON _skus WHEN EXISTS (SELECT 1 FROM _hub) BEGIN
  INSERT INTO _catalog_news (branch, product_id) VALUES ('', OLD.product_id);
END;

CREATE TRIGGER stocks_are_new AFTER INSERT ON _stocks
WHEN EXISTS (SELECT 1 FROM _hub)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM _feed_branches b, _skus s
    WHERE b.subsidiary_id = NEW.subsidiary_id AND b.line IS NOT NULL AND s.sku = NEW.sku;
END;

CREATE TRIGGER stocks_change AFTER UPDATE OF qty, show ON _stocks
WHEN EXISTS (SELECT 1 FROM _hub) AND (NEW.qty IS NOT OLD.qty OR NEW.show IS NOT OLD.show)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM _feed_branches b, _skus s
    WHERE b.subsidiary_id = NEW.subsidiary_id AND b.line IS NOT NULL AND s.sku = NEW.sku;
END;

CREATE TRIGGER stocks_go AFTER DELETE ON _stocks
WHEN EXISTS (SELECT 1 FROM _hub)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM _feed_branches b, _skus s
    WHERE b.subsidiary_id = OLD.subsidiary_id AND b.line IS NOT NULL AND s.sku = OLD.sku;
END;

CREATE TRIGGER integrations_are_new AFTER INSERT ON integrations
WHEN EXISTS (SELECT 1 FROM _hub)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) SELECT branch, NEW.product_id FROM _feed_branches
    WHERE subsidiary_id = NEW.subsidiary_id AND line IS NOT NULL;
END;

CREATE TRIGGER integrations_go AFTER DELETE ON integrations
WHEN EXISTS (SELECT 1 FROM _hub)
BEGIN
  INSERT INTO _catalog_news (branch, product_id) SELECT branch, OLD.product_id FROM _feed_branches
    WHERE subsidiary_id = OLD.subsidiary_id AND line IS NOT NULL;
END;

-- A row is a change of the outbox that a branch handed up.
CREATE TABLE _handed_up (
  change_id INTEGER PRIMARY KEY,
  branch TEXT NOT NULL,
  branch_change_id INTEGER NOT NULL,
  settled INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX handed_up_settled ON _handed_up (change_id) WHERE settled = 1;

CREATE INDEX handed_up_by_branch ON _handed_up (branch, change_id);

CREATE TRIGGER handed_up_settles AFTER UPDATE OF state ON _outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded') AND NEW.state <> OLD.state
BEGIN
  UPDATE _handed_up SET settled = 1 WHERE change_id = NEW.change_id;
END;

-- A row is an acknowledgement of a branch that waits until its order is known and assigned.
CREATE TABLE _waiting_acks (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  acked_at TEXT NOT NULL,
  source TEXT NOT NULL DEFAULT 'branch',
  as_of TEXT,
  without TEXT,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;

INSERT INTO marks (name, value) VALUES ('role.hub', 1);
