-- Numbers whose type the platform does not state are kept as they were sent: ANY keeps a number a number and a
-- text a text. `pushed_mark` is the mark of the last push that set the row; what a sweep asked for before that
-- mark is older and does not overwrite it. `uncertain`: a push was sent and its answer lost, so the platform may have
-- another value; not trusted until the platform says it again.
CREATE TABLE products (
  product_id TEXT PRIMARY KEY,
  name TEXT,
  category TEXT,
  show INTEGER,
  -- When no branch listed it any more; NULL while it is there. A vanished product has no integrations.
  vanished_at TEXT,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0,
  updated_at TEXT NOT NULL,
  payload TEXT NOT NULL
) STRICT;

CREATE INDEX products_by_name ON products (name);

CREATE TABLE skus (
  sku TEXT PRIMARY KEY,
  product_id TEXT NOT NULL,
  barcode TEXT,
  price ANY,
  with_discount ANY,
  discount ANY,
  show INTEGER,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX skus_by_product ON skus (product_id);
CREATE INDEX skus_by_barcode ON skus (barcode) WHERE barcode IS NOT NULL;

-- confirmed_seq: newest event of the order feed when the platform last said or took this value.
CREATE TABLE stocks (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  qty ANY,
  show INTEGER,
  confirmed_seq INTEGER NOT NULL DEFAULT 0,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (sku, subsidiary_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX stocks_by_subsidiary ON stocks (subsidiary_id);

-- No key: the platform states one mapping for each branch, and a second one is kept as well.
CREATE TABLE integrations (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  product_id_pos_a TEXT,
  product_code_pos_b TEXT,
  ext_id TEXT,
  product_id TEXT NOT NULL
) STRICT;
CREATE INDEX integrations_by_sku ON integrations (sku);
-- Each index alone answers which product an externalId stands for; every change that is handed over asks.
CREATE INDEX integrations_by_ext_id ON integrations (ext_id, sku, subsidiary_id, product_id)
  WHERE ext_id IS NOT NULL;
CREATE INDEX integrations_by_pos_a ON integrations (product_id_pos_a, sku, subsidiary_id, product_id)
  WHERE product_id_pos_a IS NOT NULL;
CREATE INDEX integrations_by_pos_b ON integrations (product_code_pos_b, sku, subsidiary_id, product_id)
  WHERE product_code_pos_b IS NOT NULL;

-- Which branch lists which product, and the digest of the record there; NULL when the mirror has moved on since.
CREATE TABLE branch_products (
  branch TEXT NOT NULL,
  product_id TEXT NOT NULL,
  digest TEXT,
  PRIMARY KEY (branch, product_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX branch_products_by_product ON branch_products (product_id);

-- The last whole, consistent sweep of each branch.
CREATE TABLE sweeps (
  branch TEXT PRIMARY KEY,
  subsidiary_id TEXT,
  started_at TEXT NOT NULL,
  completed_at TEXT NOT NULL,
  as_of_seq INTEGER NOT NULL,
  pages INTEGER NOT NULL,
  products INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Counters that only rise.
CREATE TABLE marks (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO marks (name, value) VALUES ('push', 0);
