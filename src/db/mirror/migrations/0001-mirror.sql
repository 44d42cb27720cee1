-- What a POS reads: the tables and views of docs/pos.md. What begins with `_` is tillsync's own; a view gives a POS the
-- columns of such a table that are the POS's. Where a row has a payload, that is the last column, so that the others are
-- read without its pages.

-- The one row is the version of this contract with the POS.
CREATE VIEW contract AS SELECT 1 AS version, '2026-11-24' AS since;

-- A row is an order in its newest state.
CREATE TABLE _orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  code INTEGER,
  status TEXT,
  store_external_id TEXT,
  website_id TEXT,
  name TEXT,
  channel TEXT,
  created_at TEXT,
  delivery_type TEXT,
  amount_to_pay,
  amount,
  delivery_fee,
  coupon_discount,
  delivery_time TEXT,
  is_scheduled INTEGER,
  scheduled_for TEXT,
  address_lat REAL,
  address_lng REAL,
  address_address TEXT,
  address_street_number TEXT,
  address_street_address TEXT,
  address_country TEXT,
  address_state TEXT,
  address_city TEXT,
  address_zip_code TEXT,
  address_phone_number TEXT,
  address_details TEXT,
  customer_first_name TEXT,
  customer_last_name TEXT,
  customer_email TEXT,
  customer_phone_number TEXT,
  seq INTEGER NOT NULL,
  updated_at TEXT NOT NULL,
  ended_at TEXT,
  forgotten_at TEXT,
  event_source TEXT NOT NULL,
  poll_digest TEXT,
  to_book_since TEXT,
  lines_seq INTEGER,
  -- Event at which only the order of the lines last changed; NULL: none did.
  numbers_seq INTEGER,
  sums_differ INTEGER,
  -- How well each value is known: a digit for each, as src/orders/merging/merge.ts writes them.
  evidence TEXT NOT NULL,
  -- Which part of it could not be read, and since when; NULL: it is complete.
  incomplete_reason TEXT,
  incomplete_since TEXT,
  -- A time when an answer of GET /order/all had it, the last one where it is missing now; NULL: none had it.
  listed_at TEXT,
  -- The first answer for its day that lacked it; NULL: it is listed.
  missing_since TEXT,
  -- 0: missing in one answer that lacked most orders, so it is not reported yet.
  missing_told INTEGER NOT NULL DEFAULT 0,
  payload_source TEXT NOT NULL,
  payload_at TEXT,
  payload TEXT NOT NULL
);

CREATE VIEW orders AS
SELECT order_id, code, status, store_external_id, website_id, name, channel, created_at, delivery_type,
  amount_to_pay, amount, delivery_fee, coupon_discount, delivery_time, is_scheduled, scheduled_for,
  address_lat, address_lng, address_address, address_street_number, address_street_address,
  address_country, address_state, address_city, address_zip_code, address_phone_number, address_details,
  customer_first_name, customer_last_name, customer_email, customer_phone_number, seq, updated_at,
  ended_at, forgotten_at, payload
FROM _orders;

CREATE INDEX orders_by_seq ON _orders (seq);

CREATE INDEX orders_by_created_at ON _orders (created_at);

CREATE INDEX orders_by_code ON _orders (code);

-- A poll finds what it has mirrored already by the digests of its records, without reading them.
CREATE INDEX orders_by_poll_digest ON _orders (poll_digest) WHERE poll_digest IS NOT NULL;

-- With the store, so that orders of unknown stores are found without reading the orders themselves.
CREATE INDEX orders_open ON _orders (created_at, store_external_id)
  WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');

CREATE INDEX orders_scheduled ON _orders (scheduled_for)
  WHERE (is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL))
    AND (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'));

CREATE INDEX orders_with_customer ON _orders (ended_at) WHERE ended_at IS NOT NULL AND forgotten_at IS NULL;

CREATE INDEX orders_waiting ON _orders (to_book_since)
  WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');

CREATE INDEX orders_incomplete ON _orders (incomplete_since) WHERE incomplete_since IS NOT NULL;

CREATE INDEX orders_missing ON _orders (missing_since) WHERE missing_since IS NOT NULL;

-- A row is a line of an order.
CREATE TABLE order_items (
  order_id TEXT NOT NULL,
  line INTEGER NOT NULL,
  product_external_id TEXT,
  product_name TEXT,
  quantity,
  comment TEXT,
  unit_price,
  base_unit_price,
  product_price,
  product_base_price,
  sku TEXT,
  product_id TEXT,
  matched_by TEXT,
  PRIMARY KEY (order_id, line)
) WITHOUT ROWID;

-- A row is an option of a modifier of a line.
CREATE TABLE order_item_modifiers (
  order_id TEXT NOT NULL,
  line INTEGER NOT NULL,
  modifier INTEGER NOT NULL,
  modifier_external_id TEXT,
  name TEXT,
  short_name TEXT,
  description TEXT,
  option_id TEXT,
  option_external_id TEXT,
  option_name TEXT,
  option_price,
  quantity,
  PRIMARY KEY (order_id, line, modifier)
) WITHOUT ROWID;

-- A row is an event of the order feed: a change that a POS can see.
CREATE TABLE order_events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  status TEXT,
  previous_status TEXT,
  source TEXT NOT NULL CHECK (source IN ('webhook', 'poll')),
  observed_at TEXT NOT NULL
);

-- A row is an order that the POS of a store has acknowledged.
CREATE TABLE _order_acks (
  order_id TEXT NOT NULL,
  branch TEXT NOT NULL,
  acked_at TEXT NOT NULL,
  source TEXT NOT NULL,
  seq INTEGER,
  -- The lines that the POS has not booked, as a JSON array of their numbers; NULL: it has booked all.
  without TEXT,
  edited_seq INTEGER,
  waits_since TEXT,
  PRIMARY KEY (order_id, branch)
) WITHOUT ROWID;

CREATE VIEW order_acks AS
SELECT order_id, branch, acked_at, source, seq, without, edited_seq
FROM _order_acks;

CREATE INDEX order_acks_by_time ON _order_acks (acked_at);

CREATE INDEX order_acks_waiting ON _order_acks (waits_since) WHERE waits_since IS NOT NULL;

-- A row is a paid order, open or not, that the POS of its store has not acknowledged as a whole.
CREATE VIEW orders_unbooked AS
SELECT o.*,
  (SELECT max(a.acked_at) FROM _order_acks a
    WHERE a.order_id = o.order_id AND a.branch IN ('', coalesce(o.store_external_id, ''))) AS acked_at
FROM orders o
WHERE (o.status IS NULL OR o.status NOT IN ('pending', 'payment-pending', 'cancel', 'refund', 'payment-canceled'))
  AND NOT EXISTS (SELECT 1 FROM _order_acks a
    WHERE a.order_id = o.order_id AND a.branch IN ('', coalesce(o.store_external_id, '')) AND a.without IS NULL
      AND (a.edited_seq IS NULL OR NOT EXISTS (
        SELECT 1 FROM _stock_steps s
          LEFT JOIN _stock_counts n ON n.sku = s.sku AND n.subsidiary_id = s.subsidiary_id
          LEFT JOIN _outbox c ON c.change_id = n.change_id
        WHERE s.order_id = o.order_id AND s.booked_version IS NULL AND s.qty <> 0
          AND NOT coalesce(s.seq <= c.as_of_seq AND s.held_until_ms <= CASE WHEN c.counted_at IS NULL THEN c.handed_ms
            ELSE CAST(strftime('%s', c.counted_at) AS INTEGER) * 1000 + CAST(substr(c.counted_at, 21, 3) AS INTEGER) END, 0))));

-- A row is an order of orders_unbooked that is open.
CREATE VIEW orders_to_book AS
SELECT * FROM orders_unbooked
WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');

-- A row is an open order that is scheduled.
CREATE VIEW orders_due AS
SELECT s.*,
  (CAST(strftime('%s', s.due_at) AS INTEGER) - CAST(strftime('%s', 'now') AS INTEGER)) / 60 AS due_in_minutes,
  (SELECT max(a.acked_at) FROM _order_acks a WHERE a.order_id = s.order_id) AS acked_at
FROM (
  SELECT o.*,
    CASE WHEN scheduled_for GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*Z' THEN scheduled_for END AS due_at
  FROM orders o
  WHERE (is_scheduled = 1 OR (is_scheduled IS NULL AND scheduled_for IS NOT NULL))
    AND (status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund'))) s;

-- A row is an acknowledgement by SQL that was refused.
CREATE TABLE refused_acks (
  order_id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER,
  refused_at TEXT NOT NULL,
  message TEXT NOT NULL
) WITHOUT ROWID;

-- A row is a product.
CREATE TABLE _products (
  product_id TEXT NOT NULL PRIMARY KEY,
  name TEXT,
  category TEXT,
  show INTEGER,
  -- When no branch listed it any more; NULL while it is there. A vanished product has no integrations.
  vanished_at TEXT,
  updated_at TEXT NOT NULL,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0,
  payload TEXT NOT NULL
);

CREATE VIEW products AS
SELECT product_id, name, category, show, vanished_at, updated_at, payload
FROM _products;

CREATE INDEX products_by_name ON _products (name);

-- A row is a SKU of a product.
CREATE TABLE _skus (
  sku TEXT NOT NULL PRIMARY KEY,
  product_id TEXT NOT NULL,
  barcode TEXT,
  price,
  with_discount,
  discount,
  show INTEGER,
  price_confirmed_ms INTEGER NOT NULL DEFAULT 0,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0
);

CREATE VIEW skus AS
SELECT sku, product_id, barcode, price, with_discount, discount, show
FROM _skus;

CREATE INDEX skus_by_product ON _skus (product_id);

CREATE INDEX skus_by_barcode ON _skus (barcode) WHERE barcode IS NOT NULL;

-- A row is the stock of a SKU in a branch, as the platform has it.
CREATE TABLE _stocks (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  qty,
  show INTEGER,
  confirmed_seq INTEGER NOT NULL DEFAULT 0,
  confirmed_ms INTEGER NOT NULL DEFAULT 0,
  pushed_mark INTEGER NOT NULL DEFAULT 0,
  uncertain INTEGER NOT NULL DEFAULT 0,
  show_uncertain INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;

CREATE VIEW stocks AS
SELECT sku, subsidiary_id, qty, show
FROM _stocks;

CREATE INDEX stocks_by_subsidiary ON _stocks (subsidiary_id);

-- A row is what is kept back of a stock, of a product in every branch, or of all products of a branch.
CREATE VIEW stock_safety AS
SELECT sku, subsidiary_id, safety_qty AS qty
FROM _stock_notes WHERE safety_qty IS NOT NULL;

-- A row has the POS's ids of a SKU in a branch.
CREATE TABLE integrations (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  product_id_pos_a TEXT,
  product_code_pos_b TEXT,
  ext_id TEXT,
  product_id TEXT NOT NULL
);

CREATE INDEX integrations_by_ext_id ON integrations (ext_id, sku, subsidiary_id, product_id)
  WHERE ext_id IS NOT NULL;

CREATE INDEX integrations_by_pos_a ON integrations (product_id_pos_a, sku, subsidiary_id, product_id)
  WHERE product_id_pos_a IS NOT NULL;

CREATE INDEX integrations_by_pos_b ON integrations (product_code_pos_b, sku, subsidiary_id, product_id)
  WHERE product_code_pos_b IS NOT NULL;

CREATE INDEX integrations_by_place ON integrations (sku, subsidiary_id);

-- A row is a change on its way to the platform. That of a count stays while it is the last one of its stock, because the
-- ledger reads from it what was counted.
CREATE TABLE _outbox (
  change_id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('product', 'stock')),
  target TEXT NOT NULL,
  -- The platform's own item shape. For a stock the quantity as the POS counted it; `sent_qty` is what was sent.
  body TEXT NOT NULL,
  -- 'counted': the change is forgotten, and its count is still the last one.
  state TEXT NOT NULL CHECK (state IN ('pending', 'sending', 'done', 'rejected', 'superseded', 'counted')),
  attempts INTEGER NOT NULL DEFAULT 0,
  message TEXT,
  created_at TEXT NOT NULL,
  settled_at TEXT,
  settled_seq INTEGER,
  -- How the sender names the change, and who the sender is.
  reference TEXT,
  origin TEXT,
  -- When a stock was counted, as the POS said it; NULL: when it was handed over.
  counted_at TEXT,
  -- The number of earlier values that this row replaced.
  replaced INTEGER NOT NULL DEFAULT 0,
  superseded_by INTEGER,
  -- The guard rail that holds it; NULL: none.
  held_guard TEXT,
  value_before TEXT,
  -- Way in: 'inbox', 'http', 'cli', 'branch' or 'hold-back'.
  source TEXT NOT NULL,
  handed_ms INTEGER NOT NULL DEFAULT 0,
  -- JSON: the id, and the branch if one was given, by which the POS named a stock; NULL: by its sku.
  named TEXT,
  sku TEXT,
  subsidiary_id TEXT,
  -- 'mirror': the target is known; 'as-is': the platform decides; 'needs-read': read the product first.
  basis TEXT NOT NULL CHECK (basis IN ('mirror', 'as-is', 'needs-read')),
  -- Changes of one kind that share it are never under way in two calls: the product, where it is known.
  conflict_key TEXT NOT NULL,
  -- Names of the values in the body; a change with the same ones takes the place of a waiting one whole.
  fields TEXT NOT NULL,
  -- Rises with every value that is taken in.
  version INTEGER NOT NULL CHECK (typeof(version) = 'integer'),
  -- Newest event of the order feed when the value was handed over.
  as_of_seq INTEGER NOT NULL DEFAULT 0,
  -- Sold out before all else, then the longest waiting.
  priority INTEGER NOT NULL,
  branch TEXT NOT NULL DEFAULT '',
  queue_seq INTEGER NOT NULL,
  -- The call it is under way in, and what was sent of a stock.
  call_id INTEGER,
  sent_qty,
  sent_as_of_seq INTEGER,
  refused_since INTEGER,
  -- When a stock was set to zero that had not been.
  zeroed_at TEXT
);

CREATE VIEW outbox AS
SELECT change_id, kind, target, body, state, attempts, message, created_at, settled_at, settled_seq,
  reference, origin, counted_at, replaced, superseded_by, held_guard, value_before
FROM _outbox WHERE state <> 'counted';

CREATE UNIQUE INDEX outbox_waiting ON _outbox (kind, target) WHERE state = 'pending' AND held_guard IS NULL;

CREATE UNIQUE INDEX outbox_held ON _outbox (kind, target) WHERE state = 'pending' AND held_guard IS NOT NULL;

CREATE INDEX outbox_sending ON _outbox (kind, conflict_key) WHERE state = 'sending';

CREATE INDEX outbox_unresolved ON _outbox (basis, change_id)
  WHERE state IN ('pending', 'sending') AND basis <> 'mirror';

CREATE INDEX outbox_settled ON _outbox (settled_at) WHERE settled_at IS NOT NULL;

CREATE INDEX outbox_rejected ON _outbox (change_id) WHERE state = 'rejected';

CREATE INDEX outbox_rejected_target ON _outbox (kind, target) WHERE state = 'rejected';

CREATE INDEX outbox_sent ON _outbox (kind, conflict_key, version) WHERE state IN ('sending', 'done');

CREATE INDEX outbox_zeroed ON _outbox (zeroed_at) WHERE zeroed_at IS NOT NULL;

CREATE INDEX outbox_line ON _outbox (kind, priority, branch, queue_seq, basis)
  WHERE state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read';

CREATE UNIQUE INDEX outbox_settled_seq ON _outbox (settled_seq) WHERE settled_seq IS NOT NULL;

CREATE TRIGGER outbox_settles AFTER UPDATE OF state ON _outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded') AND NEW.state <> OLD.state
BEGIN
  INSERT INTO marks (name, value) SELECT 'outbox.settled', 0
    WHERE NOT EXISTS (SELECT 1 FROM marks WHERE name = 'outbox.settled');
  UPDATE marks SET value = value + 1 WHERE name = 'outbox.settled';
  UPDATE _outbox SET settled_seq =
    (SELECT value FROM marks WHERE name = 'outbox.settled') WHERE change_id = NEW.change_id;
END;

CREATE TRIGGER outbox_begins_settled AFTER INSERT ON _outbox
WHEN NEW.state IN ('done', 'rejected', 'superseded')
BEGIN
  INSERT INTO marks (name, value) SELECT 'outbox.settled', 0
    WHERE NOT EXISTS (SELECT 1 FROM marks WHERE name = 'outbox.settled');
  UPDATE marks SET value = value + 1 WHERE name = 'outbox.settled';
  UPDATE _outbox SET settled_seq =
    (SELECT value FROM marks WHERE name = 'outbox.settled') WHERE change_id = NEW.change_id;
END;

-- A row is a reference under which a change was handed over.
CREATE VIEW outbox_references AS
SELECT reference, change_id FROM _outbox WHERE reference IS NOT NULL
UNION ALL
SELECT m.reference, m.change_id FROM _merged_references m JOIN _outbox o USING (change_id)
WHERE o.reference IS NOT m.reference;

-- A row is a flow of data and when it last succeeded.
CREATE TABLE freshness (
  subject TEXT NOT NULL PRIMARY KEY,
  last_ok_at TEXT,
  last_try_at TEXT,
  state TEXT NOT NULL,
  message TEXT NOT NULL,
  failure_code TEXT,
  failing_since TEXT,
  failures INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A row is an alarm that is up.
CREATE TABLE alarms (
  key TEXT NOT NULL PRIMARY KEY,
  message TEXT NOT NULL,
  level TEXT,
  raised_at TEXT NOT NULL,
  changed_at TEXT NOT NULL
) WITHOUT ROWID;

-- A row is something that arrived and could not be read.
CREATE TABLE _quarantine (
  quarantine_id INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  received_at TEXT NOT NULL,
  reason TEXT NOT NULL,
  digest TEXT NOT NULL UNIQUE,
  seen INTEGER NOT NULL DEFAULT 1,
  bytes INTEGER NOT NULL,
  payload NOT NULL
);

CREATE VIEW quarantine AS
SELECT quarantine_id, source, received_at, reason, payload
FROM _quarantine;

-- A row is a counter.
CREATE TABLE marks (
  name TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL CHECK (typeof(value) = 'integer')
) WITHOUT ROWID;

-- A row is a name that has come up, of a kind, with when it did. 'polled-day': a date that an answer had whole;
-- 'unknown-status': one that the platform says and its document does not name; 'product-field': one that products have,
-- or had; 'acknowledging-store': one, as orders name it, whose POS has acknowledged an order; 'holding-branch': one for
-- which orders that nobody booked are held back since then, '' for every branch; 'inbox-row': the key of one that is in
-- the outbox since then and not yet removed from the inbox; 'pos-hour': an hour (UTC) and a store, '' for one not named,
-- whose POS gave a sign of life other than an acknowledgement, such as `2026-01-15T12 B1`; 'hand-over': versions, such as
-- `12-18`, of what was handed over past the inbox while that may have had rows.
CREATE TABLE _seen (
  kind TEXT NOT NULL CHECK (kind IN (
    'polled-day', 'unknown-status', 'product-field', 'acknowledging-store', 'holding-branch', 'inbox-row',
    'pos-hour', 'hand-over')),
  name TEXT NOT NULL,
  first_at TEXT NOT NULL,
  -- NULL: of this kind only the first time is noted.
  last_at TEXT,
  -- When no product had the field any more; NULL while one has it.
  gone_since TEXT,
  -- The order that had the status last.
  order_id TEXT,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Orders.

-- A row is a payload of an order other than the one in orders.
CREATE TABLE _order_payloads (
  payload_id INTEGER PRIMARY KEY,
  order_id TEXT NOT NULL,
  -- The order's newest event once this was merged.
  seq INTEGER NOT NULL,
  -- 1: it brought that event; 0: it said what was known.
  applied INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('webhook', 'poll')),
  received_at TEXT NOT NULL,
  payload TEXT NOT NULL
);

CREATE INDEX order_payloads_by_order ON _order_payloads (order_id, seq, received_at, source);

-- A row is a callback that waits, or waited, until a poll or another callback decided on it.
CREATE TABLE _held_notifications (
  held_id INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  status TEXT,
  known_status TEXT,
  digest TEXT NOT NULL,
  received_at TEXT NOT NULL,
  resolved_at TEXT,
  resolution TEXT CHECK (resolution IN ('confirmed', 'refuted', 'believed')),
  payload TEXT NOT NULL,
  UNIQUE (order_id, digest)
);

-- Catalogue.

-- A row is the last complete reading of a branch's product list.
CREATE TABLE _sweeps (
  -- Its subsidiary id, or `ext:` and its external id.
  branch TEXT NOT NULL PRIMARY KEY,
  -- NULL: the reading confirms no quantity, for it was not the platform's, or the branch has no such id.
  subsidiary_id TEXT,
  started_at TEXT NOT NULL,
  completed_at TEXT NOT NULL,
  completed_ms INTEGER NOT NULL DEFAULT 0,
  as_of_seq INTEGER NOT NULL,
  pages INTEGER NOT NULL,
  products INTEGER NOT NULL
) WITHOUT ROWID;

-- A row is a product that the list of a branch has.
CREATE TABLE _branch_products (
  branch TEXT NOT NULL,
  product_id TEXT NOT NULL,
  digest TEXT,
  -- Since when the branch's list lacks it without being believed, because it lacks most products; NULL: listed.
  missing_since TEXT,
  PRIMARY KEY (branch, product_id)
) WITHOUT ROWID;

CREATE INDEX branch_products_by_product ON _branch_products (product_id);

-- Outbox.

-- A row is a reference under which a change was handed over before a newer value took its place or joined it.
CREATE TABLE _merged_references (
  change_id INTEGER NOT NULL,
  reference TEXT NOT NULL,
  -- As the change was before: who handed it over, its version and values, and those that it replaced while they waited.
  origin TEXT,
  version INTEGER NOT NULL,
  body TEXT NOT NULL,
  waited TEXT,
  PRIMARY KEY (change_id, reference)
) WITHOUT ROWID;

CREATE INDEX merged_references_by_reference ON _merged_references (reference);

-- The conflict rule of an upsert that fires a trigger overrides the trigger's own, hence NOT EXISTS.
CREATE TRIGGER references_merge AFTER UPDATE OF reference ON _outbox
WHEN OLD.reference IS NOT NULL AND OLD.reference IS NOT NEW.reference
BEGIN
  INSERT INTO _merged_references (change_id, reference, origin, version, body, waited)
    SELECT OLD.change_id, OLD.reference, OLD.origin, OLD.version, OLD.body, json_extract(OLD.value_before, '$.waited')
    WHERE NOT EXISTS (SELECT 1 FROM _merged_references WHERE change_id = OLD.change_id AND reference = OLD.reference);
END;

CREATE TRIGGER references_go AFTER DELETE ON _outbox BEGIN
  DELETE FROM _merged_references WHERE change_id = OLD.change_id;
END;

-- A row is the newest value that was handed over of a field: `qty` and `show` of a stock, `price` of a SKU, and `name`,
-- `description` and `show` of a product. An older value of the field loses against it, whenever and however it comes.
CREATE TABLE _wanted (
  kind TEXT NOT NULL,
  -- The target of the change; for a field that the SKUs of a product share, what they have in common.
  subject TEXT NOT NULL,
  field TEXT NOT NULL,
  -- 'open': it is sent, or was; 'held': a guard holds it, beside the open one; 'given-up': a person discarded it.
  standing TEXT NOT NULL,
  version INTEGER NOT NULL,
  -- The change that has it in its body.
  change_id INTEGER NOT NULL,
  PRIMARY KEY (kind, subject, field, standing)
) WITHOUT ROWID;

-- Of a stock stays how new its newest value is, because an acknowledgement asks for that.
CREATE TRIGGER wanted_goes AFTER DELETE ON _outbox BEGIN
  DELETE FROM _wanted WHERE kind = OLD.kind AND subject IN (OLD.target, OLD.conflict_key) AND change_id = OLD.change_id
    AND (OLD.kind = 'product' OR OLD.sku IS NULL);
END;

-- Ledger of stock.

-- A row is a stock that was counted: the change that has its last count, and what is known of the calls that sent it.
CREATE TABLE _stock_counts (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  change_id INTEGER NOT NULL,
  -- Pieces of forgotten orders that the count does not contain.
  folded_qty REAL NOT NULL DEFAULT 0,
  -- The platform refused the count or a person gave it up: do not insist.
  given_up INTEGER NOT NULL DEFAULT 0,
  call_id INTEGER,
  -- The change that the call sends it with, which may be older than the count.
  call_change_id INTEGER,
  call_qty REAL,
  call_seq INTEGER,
  call_had_qty REAL,
  -- How often it was sent again without a clear answer.
  attempts INTEGER NOT NULL DEFAULT 0,
  -- Something happened since it was last looked at.
  dirty INTEGER NOT NULL DEFAULT 0,
  -- Since when the platform's quantity differs from what the ledger wants there; NULL: it does not.
  differs_since_ms INTEGER,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;

-- Finds what a change counts for: before it is forgotten, and when a person gives up hundreds of them at once.
CREATE INDEX stock_counts_by_change ON _stock_counts (change_id);

CREATE INDEX stock_counts_under_way ON _stock_counts (call_id) WHERE call_id IS NOT NULL;

CREATE INDEX stock_counts_dirty ON _stock_counts (subsidiary_id, sku) WHERE dirty = 1;

CREATE INDEX stock_counts_differing ON _stock_counts (sku, subsidiary_id) WHERE differs_since_ms IS NOT NULL;

-- A row is what an event of an order takes from a stock or gives back.
CREATE TABLE _stock_steps (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  order_id TEXT NOT NULL,
  -- Event of the order feed with which it was heard; 0: from before the ledger.
  seq INTEGER NOT NULL,
  -- The id by which the order named the product: what an order took goes with that id. '': it named none.
  external_id TEXT NOT NULL DEFAULT '',
  -- Above 0: the part that an acknowledgement left out, because the POS does not know the line yet.
  part INTEGER NOT NULL DEFAULT 0,
  -- Above 0 it takes, below 0 it gives back: cut, cancelled, moved to another store. 0: the order changed elsewhere,
  -- and the platform may have given something back here.
  qty REAL NOT NULL,
  -- The earliest moment at which the order may have been placed, by this machine's clock; 0: unknown.
  placed_ms INTEGER NOT NULL,
  -- The order's first event: the platform took it off by itself.
  is_first INTEGER NOT NULL,
  -- NULL: the POS has not acknowledged it. Else the newest hand-over of the stock at that time, 0 for none: a count
  -- contains the step only if it is at least as new.
  booked_version INTEGER,
  -- When it was acknowledged; 0: long ago.
  booked_ms INTEGER NOT NULL DEFAULT 0,
  -- Set where the order was acknowledged before: a count made after this time contains the step all the same.
  held_until_ms INTEGER,
  PRIMARY KEY (sku, subsidiary_id, order_id, seq, external_id, part)
) WITHOUT ROWID;

CREATE INDEX stock_steps_by_order ON _stock_steps (order_id);

CREATE INDEX stock_steps_by_id ON _stock_steps (external_id) WHERE external_id <> '';

-- A row is an order that the ledger knows, with the stocks that its lines take.
CREATE TABLE _ledger_orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  takes INTEGER NOT NULL,
  placed_ms INTEGER NOT NULL,
  places TEXT NOT NULL,
  is_unplaced INTEGER NOT NULL DEFAULT 0,
  is_stale INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE INDEX ledger_orders_unplaced ON _ledger_orders (seq) WHERE is_unplaced = 1;

CREATE INDEX ledger_orders_stale ON _ledger_orders (order_id) WHERE is_stale = 1;

-- A row is a count by an id that means no stock now, with the stock that it meant last.
CREATE TABLE _id_counts (
  named TEXT NOT NULL PRIMARY KEY,
  external_id TEXT NOT NULL,
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  change_id INTEGER NOT NULL,
  folded_qty REAL NOT NULL,
  given_up INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX id_counts_by_id ON _id_counts (external_id);

CREATE INDEX id_counts_by_place ON _id_counts (sku, subsidiary_id);

CREATE INDEX id_counts_by_change ON _id_counts (change_id);

-- What was kept of a forgotten change goes with its count.
CREATE TRIGGER counts_go AFTER DELETE ON _stock_counts BEGIN
  DELETE FROM _outbox WHERE change_id = OLD.change_id AND state = 'counted'
    AND NOT EXISTS (SELECT 1 FROM _id_counts WHERE change_id = OLD.change_id);
END;

CREATE TRIGGER id_counts_go AFTER DELETE ON _id_counts BEGIN
  DELETE FROM _outbox WHERE change_id = OLD.change_id AND state = 'counted'
    AND NOT EXISTS (SELECT 1 FROM _stock_counts WHERE change_id = OLD.change_id);
END;

-- A row is an id that the catalogue gave to a stock, or took from it, since the ledger last looked at what it means.
CREATE TABLE _moved_ids (
  external_id TEXT NOT NULL,
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  PRIMARY KEY (external_id, sku, subsidiary_id)
) WITHOUT ROWID;

CREATE TRIGGER ids_leave AFTER DELETE ON integrations
WHEN EXISTS (SELECT 1 FROM _stock_counts WHERE sku = OLD.sku AND subsidiary_id = OLD.subsidiary_id)
  OR EXISTS (SELECT 1 FROM _stock_steps WHERE sku = OLD.sku AND subsidiary_id = OLD.subsidiary_id)
  OR EXISTS (SELECT 1 FROM _outbox WHERE kind = 'stock'
    AND target = 'sku:' || OLD.sku || '@' || OLD.subsidiary_id AND state = 'pending' AND held_guard IS NULL)
  OR EXISTS (SELECT 1 FROM _outbox WHERE kind = 'stock'
    AND target = 'sku:' || OLD.sku || '@' || OLD.subsidiary_id AND state = 'pending' AND held_guard IS NOT NULL)
BEGIN
  INSERT OR IGNORE INTO _moved_ids (external_id, sku, subsidiary_id)
    SELECT id, OLD.sku, OLD.subsidiary_id
    FROM (SELECT OLD.ext_id AS id UNION ALL SELECT OLD.product_id_pos_a UNION ALL SELECT OLD.product_code_pos_b)
    WHERE id <> '';
END;

CREATE TRIGGER ids_arrive AFTER INSERT ON integrations
BEGIN
  INSERT OR IGNORE INTO _moved_ids (external_id, sku, subsidiary_id)
    SELECT id, NEW.sku, NEW.subsidiary_id
    FROM (SELECT NEW.ext_id AS id UNION ALL SELECT NEW.product_id_pos_a UNION ALL SELECT NEW.product_code_pos_b)
    WHERE id <> '' AND (EXISTS (SELECT 1 FROM _stock_steps WHERE external_id = id AND external_id <> '')
      OR EXISTS (SELECT 1 FROM _id_counts WHERE external_id = id));
END;

-- A row is what is known of a stock and stays when its count goes. sku '' is every product, subsidiary_id '' every
-- branch; only what is kept back has such rows.
CREATE TABLE _stock_notes (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  -- What is kept back; NULL: no rule of its own.
  safety_qty REAL,
  -- What the platform showed of it, when scarce, before its count was sent; NULL: nothing that still speaks.
  looked_ms INTEGER,
  looked_seq INTEGER,
  missing_qty REAL,
  look_refused INTEGER,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;

CREATE INDEX stock_notes_safety ON _stock_notes (sku, subsidiary_id, safety_qty) WHERE safety_qty IS NOT NULL;

CREATE INDEX stock_notes_looked ON _stock_notes (looked_ms) WHERE looked_ms IS NOT NULL;

CREATE TRIGGER store_acknowledges AFTER INSERT ON _order_acks WHEN NEW.source <> 'cli' BEGIN
  INSERT INTO _seen (kind, name, first_at, last_at)
    SELECT 'acknowledging-store', coalesce(store_external_id, ''), NEW.acked_at, NEW.acked_at FROM _orders
      WHERE order_id = NEW.order_id AND NOT EXISTS (SELECT 1 FROM _seen
        WHERE kind = 'acknowledging-store' AND _seen.name = coalesce(_orders.store_external_id, ''));
  UPDATE _seen SET last_at = NEW.acked_at WHERE kind = 'acknowledging-store'
    AND name IN (SELECT coalesce(store_external_id, '') FROM _orders WHERE order_id = NEW.order_id);
END;

CREATE TRIGGER store_acknowledges_again AFTER UPDATE OF acked_at ON _order_acks WHEN NEW.source <> 'cli' BEGIN
  UPDATE _seen SET last_at = NEW.acked_at WHERE kind = 'acknowledging-store'
    AND name IN (SELECT coalesce(store_external_id, '') FROM _orders WHERE order_id = NEW.order_id);
END;

-- A row is what the platform is believed to have of a stock.
CREATE VIEW _stock_beliefs AS
SELECT k.sku, k.subsidiary_id, k.show, k.show_uncertain,
  CASE WHEN k.uncertain = 0 THEN k.qty + 0 END AS believed_qty,
  max(k.confirmed_seq, coalesce((SELECT w.as_of_seq FROM _sweeps w
      WHERE w.branch = k.subsidiary_id AND w.subsidiary_id IS NOT NULL), 0))
    AS confirmed_seq,
  max(k.confirmed_ms, coalesce((SELECT w.completed_ms FROM _sweeps w
      WHERE w.branch = k.subsidiary_id AND w.subsidiary_id IS NOT NULL), 0))
    AS confirmed_ms
FROM _stocks k;

-- A row is a stock with its last count, the quantity that is wanted at the platform and the one expected there. It is read
-- by the stock's key: other conditions compute every stock.
CREATE VIEW _stock_ledger AS
SELECT c.*,
  max(0, round(c.counted_qty - c.reserved_qty - c.unheard_qty - c.safety_qty, 9)) AS wanted_qty,
  CASE WHEN c.call_id IS NULL AND c.is_moved = 0 AND c.unplaced_seq <= c.confirmed_seq
      -- Nobody knows whether a platform that sold more than it had goes below zero.
      AND (c.ordered_qty = 0 OR c.believed_qty >= c.ordered_qty)
    THEN round(c.believed_qty - c.ordered_qty, 9) END AS expected_qty
FROM (
  SELECT b.*,
    CASE WHEN EXISTS (SELECT 1 FROM stock_safety) THEN coalesce(
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = b.sku AND f.subsidiary_id = ''),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = b.subsidiary_id),
      (SELECT f.qty FROM stock_safety f WHERE f.sku = '' AND f.subsidiary_id = ''), 0) ELSE 0 END AS safety_qty,
    CASE WHEN b.holds THEN
      -- A cut of lines that the count contains does not make up for lines that it does not contain.
      (SELECT total(max(0, min(r.live, max(0, r.open) + r.left_out))) FROM (
        SELECT sum(e.qty) AS live, sum(CASE WHEN e.part = 0 THEN e.open ELSE 0 END) AS open,
          sum(CASE WHEN e.part > 0 THEN e.open ELSE 0 END) AS left_out
        FROM (SELECT s.order_id, s.qty, s.part,
            CASE WHEN s.booked_version IS NOT NULL AND s.seq <= b.counted_seq AND s.booked_version <= b.counted_version
                AND NOT (s.booked_ms > b.counted_ms AND s.booked_ms < b.handed_ms) THEN 0
              WHEN s.held_until_ms <= b.counted_ms AND s.seq <= b.counted_seq THEN 0
              WHEN s.qty > 0 THEN s.qty
              WHEN s.seq > b.counted_seq THEN s.qty ELSE 0 END AS open
          FROM _stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id) e
        GROUP BY e.order_id) r)
    ELSE
      (SELECT total(max(0, r.qty)) FROM (
        SELECT sum(s.qty) AS qty FROM _stock_steps s
        WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.counted_seq GROUP BY s.order_id) r)
    END AS reserved_qty,
    coalesce((SELECT max(0, k.missing_qty - (SELECT total(max(0, s.qty)) FROM _stock_steps s
        WHERE s.sku = k.sku AND s.subsidiary_id = k.subsidiary_id AND s.seq > k.looked_seq))
      FROM _stock_notes k WHERE k.sku = b.sku AND k.subsidiary_id = b.subsidiary_id), 0) AS unheard_qty,
    (SELECT total(s.qty) FROM _stock_steps s
      WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id AND s.seq > b.confirmed_seq) AS ordered_qty,
    EXISTS (SELECT 1 FROM _stock_steps s WHERE s.sku = b.sku AND s.subsidiary_id = b.subsidiary_id
      AND s.seq > b.confirmed_seq AND (s.is_first = 0 OR s.placed_ms <= b.confirmed_ms)) AS is_moved,
    (SELECT coalesce(max(o.seq), 0) FROM _ledger_orders o WHERE o.is_unplaced = 1) AS unplaced_seq
  FROM (
    SELECT s.*, o.as_of_seq AS counted_seq, o.version AS counted_version, o.named, o.body, o.handed_ms,
      -- Read without json_extract, which the SQLite of a POS may lack. Keys of a body are the only text with '"qty":'.
      round(CAST(substr(o.body, instr(o.body, '"qty":') + 6) AS REAL) - s.folded_qty, 9) AS counted_qty,
      CASE WHEN o.counted_at IS NULL THEN o.handed_ms
        ELSE CAST(strftime('%s', o.counted_at) AS INTEGER) * 1000 + CAST(substr(o.counted_at, 21, 3) AS INTEGER) END
        AS counted_ms,
      k.believed_qty, k.show, k.show_uncertain,
      coalesce(k.confirmed_seq, 0) AS confirmed_seq, coalesce(k.confirmed_ms, 0) AS confirmed_ms,
      EXISTS (SELECT 1 FROM _seen h WHERE h.kind = 'holding-branch' AND h.name IN ('', s.subsidiary_id)) AS holds
    FROM _stock_counts s CROSS JOIN _outbox o USING (change_id)
      LEFT JOIN _stock_beliefs k ON k.sku = s.sku AND k.subsidiary_id = s.subsidiary_id
    -- Each stock is a group of its own. Without groups, SQLite computes these columns again wherever they are used.
    GROUP BY s.sku, s.subsidiary_id) b) c;

-- Hooks.

-- A row is a hook's place in the feed of one event.
CREATE TABLE _hooks (
  name TEXT NOT NULL,
  event TEXT NOT NULL DEFAULT 'order',
  seq INTEGER NOT NULL,
  -- Of order.prepare: events of the order feed up to this one were looked at.
  order_seq INTEGER,
  began_at TEXT NOT NULL,
  -- A hook does not get orders that were created before this time and first came by a poll. NULL: it gets them.
  news_from TEXT,
  last_ok_at TEXT,
  -- Failed tries since `last_ok_at`.
  failures INTEGER NOT NULL DEFAULT 0,
  last_failure_at TEXT,
  last_failure TEXT,
  next_try_at TEXT,
  rewinds INTEGER NOT NULL DEFAULT 0,
  rewound_at TEXT,
  PRIMARY KEY (name, event)
) WITHOUT ROWID;

-- A row is something that was sent to a hook.
CREATE TABLE _hook_deliveries (
  delivery_id INTEGER PRIMARY KEY,
  hook TEXT NOT NULL,
  event TEXT NOT NULL DEFAULT 'order',
  -- The event of the order feed.
  seq INTEGER NOT NULL,
  change_id INTEGER,
  -- Of its newest try.
  at TEXT NOT NULL,
  tries INTEGER NOT NULL,
  taken INTEGER NOT NULL,
  -- What the receiver said to that try; it never names the customer.
  answer TEXT NOT NULL
);

CREATE INDEX hook_deliveries_by_hook ON _hook_deliveries (hook, event, delivery_id);

-- A row is what a hook was told last of the preparation of an order.
CREATE TABLE _prepared_orders (
  hook TEXT NOT NULL,
  order_id TEXT NOT NULL,
  -- Events told of the order; 0: it was paid and due before the hook began, so none ever is.
  step INTEGER NOT NULL,
  is_prepared INTEGER NOT NULL,
  store TEXT,
  -- What was to be prepared, as JSON; NULL where only its digest is known.
  content TEXT,
  digest TEXT NOT NULL,
  -- The newest of its events.
  seq INTEGER NOT NULL,
  PRIMARY KEY (hook, order_id)
) WITHOUT ROWID;

CREATE INDEX prepared_orders_by_order ON _prepared_orders (order_id);

CREATE INDEX prepared_orders_by_seq ON _prepared_orders (hook, seq);

-- A row is an event order.prepare, order.changed or order.undone of a hook, numbered for each hook on its own.
CREATE TABLE _preparation_events (
  hook TEXT NOT NULL,
  seq INTEGER NOT NULL,
  event TEXT NOT NULL,
  order_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  digest TEXT NOT NULL,
  reason TEXT,
  -- JSON; NULL where what was told before is not known.
  changes TEXT,
  decided_at TEXT NOT NULL,
  PRIMARY KEY (hook, seq)
) WITHOUT ROWID;

CREATE INDEX preparation_events_by_order ON _preparation_events (order_id);

-- Health.

-- A row is an action of a person, or of the daemon, that a person may ask about later.
CREATE TABLE _audit (
  audit_id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  who TEXT NOT NULL,
  action TEXT NOT NULL,
  -- What it was done to, such as `change 12`, and what came of it.
  subject TEXT,
  detail TEXT
);

-- What a new mirror begins with.

INSERT INTO freshness (subject, state, message) VALUES
  ('auth', 'unknown', ''),
  ('catalog.sweep', 'unknown', ''),
  ('orders.poll', 'unknown', ''),
  ('orders.webhook', 'unknown', ''),
  ('outbox.push', 'unknown', '');

INSERT INTO marks (name, value) VALUES
  ('events.trimmed', 0),
  ('ledger.from', 0),
  ('ledger.seen', -1),
  ('outbox.call', 0),
  ('outbox.version', 0),
  ('push', 0);
