-- What a branch sees of the catalogue. `subsidiary_id`, `catalog_key`: how stocks and `branch_products` name it;
-- without the key the configuration does not have the branch. `catalog_rev`: up to there its feed has what is in
-- `catalog_news`. `snapshot_stage`: what the snapshot under way brings next, of orders up to the event `snapshot_seq`,
-- beginning behind `snapshot_after`.
ALTER TABLE feed_branches ADD COLUMN subsidiary_id TEXT;
ALTER TABLE feed_branches ADD COLUMN catalog_key TEXT;
ALTER TABLE feed_branches ADD COLUMN catalog_rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE feed_branches ADD COLUMN snapshot_stage TEXT;
ALTER TABLE feed_branches ADD COLUMN snapshot_seq INTEGER;
ALTER TABLE feed_branches ADD COLUMN snapshot_after;
CREATE INDEX feed_branches_by_subsidiary ON feed_branches (subsidiary_id) WHERE subsidiary_id IS NOT NULL;
CREATE INDEX feed_branches_in_snapshot ON feed_branches (branch) WHERE snapshot_stage IS NOT NULL;

-- Which products changed, each once with its newest change: for every branch (''), or what only one of them sees.
CREATE TABLE catalog_news (
  rev INTEGER PRIMARY KEY AUTOINCREMENT,
  branch TEXT NOT NULL,
  product_id TEXT NOT NULL,
  UNIQUE (branch, product_id)
);
CREATE INDEX catalog_news_by_branch ON catalog_news (branch, rev);

-- Acknowledgements of orders that the hub has not heard of: they count once it has, if the order is of that branch.
CREATE TABLE waiting_acks (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  acked_at TEXT NOT NULL,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;

CREATE INDEX handed_up_by_branch ON handed_up (branch, change_id);

-- Without an order's text (''), it is made from the order when it leaves; so is what `catalog` brings.
CREATE TABLE feed_new (
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
INSERT INTO feed_new SELECT feed_id, branch, n, kind, order_id, body, written_at, published FROM feed;
DROP TABLE feed;
ALTER TABLE feed_new RENAME TO feed;
CREATE INDEX feed_by_order ON feed (order_id) WHERE order_id IS NOT NULL;
CREATE INDEX feed_unpublished ON feed (feed_id) WHERE published = 0;

-- The ids of one branch are looked up for each product that goes down to it.
DROP INDEX integrations_by_sku;
CREATE INDEX integrations_by_place ON integrations (sku, subsidiary_id);

-- Only what a POS sees is news: a sweep that confirms what is known writes none. Readers parse triggers too: no word in
-- them is younger than SQLite 3.22.
CREATE TRIGGER catalog_news_once BEFORE INSERT ON catalog_news BEGIN
  DELETE FROM catalog_news WHERE branch = NEW.branch AND product_id = NEW.product_id;
END;
CREATE TRIGGER products_are_new AFTER INSERT ON products WHEN EXISTS (SELECT 1 FROM hub) BEGIN
  INSERT INTO catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;
CREATE TRIGGER products_change AFTER UPDATE OF name, category, show, vanished_at ON products
WHEN EXISTS (SELECT 1 FROM hub) AND (NEW.name IS NOT OLD.name OR NEW.category IS NOT OLD.category
  OR NEW.show IS NOT OLD.show OR NEW.vanished_at IS NOT OLD.vanished_at)
BEGIN
  INSERT INTO catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;
CREATE TRIGGER skus_are_new AFTER INSERT ON skus WHEN EXISTS (SELECT 1 FROM hub) BEGIN
  INSERT INTO catalog_news (branch, product_id) VALUES ('', NEW.product_id);
END;
CREATE TRIGGER skus_change AFTER UPDATE OF product_id, barcode, price, with_discount, discount, show ON skus
WHEN EXISTS (SELECT 1 FROM hub) AND (NEW.product_id IS NOT OLD.product_id OR NEW.barcode IS NOT OLD.barcode
  OR NEW.price IS NOT OLD.price OR NEW.with_discount IS NOT OLD.with_discount
  OR NEW.discount IS NOT OLD.discount OR NEW.show IS NOT OLD.show)
BEGIN
  INSERT INTO catalog_news (branch, product_id)
    SELECT '', OLD.product_id UNION SELECT '', NEW.product_id;
END;
CREATE TRIGGER skus_go AFTER DELETE ON skus WHEN EXISTS (SELECT 1 FROM hub) BEGIN
  INSERT INTO catalog_news (branch, product_id) VALUES ('', OLD.product_id);
END;

-- Stocks and ids of one branch; one that has not begun to listen gets all of it then.
CREATE TRIGGER stocks_are_new AFTER INSERT ON stocks
WHEN EXISTS (SELECT 1 FROM hub)
BEGIN
  INSERT INTO catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM feed_branches b, skus s
    WHERE b.subsidiary_id = NEW.subsidiary_id AND b.line IS NOT NULL AND s.sku = NEW.sku;
END;
CREATE TRIGGER stocks_change AFTER UPDATE OF qty, show ON stocks
WHEN EXISTS (SELECT 1 FROM hub) AND (NEW.qty IS NOT OLD.qty OR NEW.show IS NOT OLD.show)
BEGIN
  INSERT INTO catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM feed_branches b, skus s
    WHERE b.subsidiary_id = NEW.subsidiary_id AND b.line IS NOT NULL AND s.sku = NEW.sku;
END;
CREATE TRIGGER stocks_go AFTER DELETE ON stocks
WHEN EXISTS (SELECT 1 FROM hub)
BEGIN
  INSERT INTO catalog_news (branch, product_id) SELECT b.branch, s.product_id FROM feed_branches b, skus s
    WHERE b.subsidiary_id = OLD.subsidiary_id AND b.line IS NOT NULL AND s.sku = OLD.sku;
END;
CREATE TRIGGER integrations_are_new AFTER INSERT ON integrations
WHEN EXISTS (SELECT 1 FROM hub)
BEGIN
  INSERT INTO catalog_news (branch, product_id) SELECT branch, NEW.product_id FROM feed_branches
    WHERE subsidiary_id = NEW.subsidiary_id AND line IS NOT NULL;
END;
CREATE TRIGGER integrations_go AFTER DELETE ON integrations
WHEN EXISTS (SELECT 1 FROM hub)
BEGIN
  INSERT INTO catalog_news (branch, product_id) SELECT branch, OLD.product_id FROM feed_branches
    WHERE subsidiary_id = OLD.subsidiary_id AND line IS NOT NULL;
END;
