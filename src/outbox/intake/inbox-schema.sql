-- Written by POS libraries of any age, so nothing newer than plain SQLite is used. The name of a constraint is
-- what the POS reads when it refuses a row. Numbers may be handed over as texts that are numbers; an id that is
-- a whole number is taken as its digits. A column that is NULL says nothing.
CREATE TABLE stock_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  external_id,
  sku NUMERIC,
  qty NUMERIC,
  show NUMERIC,
  subsidiary_id,
  subsidiary_external_id,
  -- When it was counted, where that is not now. A time that cannot be used makes a rejected change of the row alone.
  counted_at,
  -- The POS's own name for the change, repeated in the mirror's outbox.
  reference,
  change_key TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
  inserted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  CONSTRAINT "change_key was used before" UNIQUE (change_key),
  CONSTRAINT "give external_id or sku" CHECK (external_id IS NOT NULL OR sku IS NOT NULL),
  CONSTRAINT "external_id must be a text that is not empty"
    CHECK (external_id IS NULL OR (typeof(external_id) IN ('text', 'integer') AND trim(external_id) <> '')),
  CONSTRAINT "sku must be a whole number of 0 or more"
    CHECK (sku IS NULL OR (typeof(sku) = 'integer' AND sku >= 0 AND sku <= 9007199254740991)),
  CONSTRAINT "qty must be given" CHECK (qty IS NOT NULL),
  -- Below zero as a till counts it; the platform gets 0.
  CONSTRAINT "qty must be a number"
    CHECK (qty IS NULL OR (typeof(qty) IN ('integer', 'real') AND qty BETWEEN -9007199254740991 AND 9007199254740991)),
  CONSTRAINT "show must be 0 or 1" CHECK (show IS NULL OR show IN (0, 1)),
  CONSTRAINT "subsidiary_id must be a text that is not empty"
    CHECK (subsidiary_id IS NULL OR (typeof(subsidiary_id) IN ('text', 'integer') AND trim(subsidiary_id) <> '')),
  CONSTRAINT "subsidiary_external_id must be a text that is not empty"
    CHECK (subsidiary_external_id IS NULL OR
      (typeof(subsidiary_external_id) IN ('text', 'integer') AND trim(subsidiary_external_id) <> '')),
  CONSTRAINT "external_id must have 200 characters at most" CHECK (external_id IS NULL OR length(external_id) <= 200),
  CONSTRAINT "subsidiary_id must have 200 characters at most" CHECK (subsidiary_id IS NULL OR length(subsidiary_id) <= 200),
  CONSTRAINT "subsidiary_external_id must have 200 characters at most" CHECK (subsidiary_external_id IS NULL OR length(subsidiary_external_id) <= 200),
  CONSTRAINT "counted_at must be a text" CHECK (counted_at IS NULL OR typeof(counted_at) = 'text'),
  CONSTRAINT "counted_at must have 200 characters at most" CHECK (counted_at IS NULL OR length(counted_at) <= 200),
  CONSTRAINT "reference must have 1000 characters at most" CHECK (reference IS NULL OR length(reference) <= 1000),
  CONSTRAINT "change_key must have 200 characters at most" CHECK (length(change_key) <= 200),
  CONSTRAINT "inserted_at must have 200 characters at most" CHECK (length(inserted_at) <= 200)
);

CREATE TABLE product_changes (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  external_id,
  sku NUMERIC,
  price NUMERIC,
  name,
  -- An empty text clears it.
  description,
  show NUMERIC,
  reference,
  change_key TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
  inserted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  CONSTRAINT "change_key was used before" UNIQUE (change_key),
  CONSTRAINT "give external_id or sku" CHECK (external_id IS NOT NULL OR sku IS NOT NULL),
  CONSTRAINT "give price, name, description or show"
    CHECK (price IS NOT NULL OR name IS NOT NULL OR description IS NOT NULL OR show IS NOT NULL),
  CONSTRAINT "external_id must be a text that is not empty"
    CHECK (external_id IS NULL OR (typeof(external_id) IN ('text', 'integer') AND trim(external_id) <> '')),
  CONSTRAINT "sku must be a whole number of 0 or more"
    CHECK (sku IS NULL OR (typeof(sku) = 'integer' AND sku >= 0 AND sku <= 9007199254740991)),
  CONSTRAINT "price must be a number of 0 or more"
    CHECK (price IS NULL OR (typeof(price) IN ('integer', 'real') AND price >= 0 AND price <= 9007199254740991)),
  CONSTRAINT "name must be a text that is not empty"
    CHECK (name IS NULL OR (typeof(name) = 'text' AND trim(name) <> '')),
  CONSTRAINT "description must be a text" CHECK (description IS NULL OR typeof(description) = 'text'),
  CONSTRAINT "show must be 0 or 1" CHECK (show IS NULL OR show IN (0, 1)),
  CONSTRAINT "external_id must have 200 characters at most" CHECK (external_id IS NULL OR length(external_id) <= 200),
  CONSTRAINT "name must have 100000 characters at most" CHECK (name IS NULL OR length(name) <= 100000),
  CONSTRAINT "description must have 100000 characters at most" CHECK (description IS NULL OR length(description) <= 100000),
  CONSTRAINT "reference must have 1000 characters at most" CHECK (reference IS NULL OR length(reference) <= 1000),
  CONSTRAINT "change_key must have 200 characters at most" CHECK (length(change_key) <= 200),
  CONSTRAINT "inserted_at must have 200 characters at most" CHECK (length(inserted_at) <= 200)
);

CREATE TABLE order_acks (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id,
  -- The event of the order feed up to which the POS has booked the order; NULL: the newest.
  seq NUMERIC,
  -- The lines of the order that the POS has not booked: their numbers, as in 2 or '2,3'; NULL: it has booked all.
  without NUMERIC,
  change_key TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
  inserted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  CONSTRAINT "change_key was used before" UNIQUE (change_key),
  CONSTRAINT "order_id must be a text that is not empty"
    CHECK (order_id IS NOT NULL AND typeof(order_id) IN ('text', 'integer') AND trim(order_id) <> ''),
  CONSTRAINT "seq must be a whole number of 0 or more"
    CHECK (seq IS NULL OR (typeof(seq) = 'integer' AND seq >= 0 AND seq <= 9007199254740991)),
  -- Only functions that every SQLite has: trim leaves nothing of a text of line numbers.
  CONSTRAINT "without must be line numbers, such as 2,3" CHECK (without IS NULL OR (typeof(without) = 'integer' AND without > 0)
    OR (typeof(without) = 'text' AND trim(without, '0123456789,[] ') = '' AND (trim(without, ',[] 0') <> '' OR replace(without, ' ', '') = '[]'))),
  CONSTRAINT "without must have 1000 characters at most" CHECK (without IS NULL OR length(without) <= 1000),
  CONSTRAINT "order_id must have 200 characters at most" CHECK (length(order_id) <= 200),
  CONSTRAINT "change_key must have 200 characters at most" CHECK (length(change_key) <= 200),
  CONSTRAINT "inserted_at must have 200 characters at most" CHECK (length(inserted_at) <= 200)
);

-- A POS that has nothing to say inserts a row, so that it counts as alive.
CREATE TABLE pos_alive (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  store_external_id,
  change_key TEXT NOT NULL DEFAULT (lower(hex(randomblob(16)))),
  inserted_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  CONSTRAINT "change_key was used before" UNIQUE (change_key),
  CONSTRAINT "store_external_id must be a text that is not empty"
    CHECK (store_external_id IS NULL OR (typeof(store_external_id) IN ('text', 'integer') AND trim(store_external_id) <> '')),
  CONSTRAINT "store_external_id must have 200 characters at most" CHECK (store_external_id IS NULL OR length(store_external_id) <= 200),
  CONSTRAINT "change_key must have 200 characters at most" CHECK (length(change_key) <= 200),
  CONSTRAINT "inserted_at must have 200 characters at most" CHECK (length(inserted_at) <= 200)
);
