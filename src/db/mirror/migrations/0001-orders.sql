-- Amounts have no declared type, so that a number stays a number and a text stays a text, as sent.
CREATE TABLE orders (
  order_id TEXT NOT NULL PRIMARY KEY,
  code INTEGER,
  status TEXT,
  seq INTEGER NOT NULL,
  updated_at TEXT NOT NULL,
  event_source TEXT NOT NULL,
  poll_digest TEXT,
  store_external_id TEXT,
  website_id TEXT,
  name TEXT,
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
  payload_source TEXT NOT NULL,
  payload TEXT NOT NULL
);

-- One index for each way a POS asks: what changed, what is newest, which order has this number, what is open.
CREATE INDEX orders_by_seq ON orders (seq);
CREATE INDEX orders_by_created_at ON orders (created_at);
CREATE INDEX orders_by_code ON orders (code);
CREATE INDEX orders_open ON orders (created_at)
  WHERE status IS NULL OR status NOT IN ('dispatched', 'payment-canceled', 'cancel', 'refund');

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
  PRIMARY KEY (order_id, line)
) WITHOUT ROWID;

-- One row for each option of a modifier, and one for a modifier without options; `modifier` counts them in a line.
CREATE TABLE order_item_modifiers (
  order_id TEXT NOT NULL,
  line INTEGER NOT NULL,
  modifier INTEGER NOT NULL,
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

-- The change feed. AUTOINCREMENT never gives a number twice, not even after rows are deleted.
CREATE TABLE order_events (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  status TEXT,
  previous_status TEXT,
  source TEXT NOT NULL CHECK (source IN ('webhook', 'poll')),
  observed_at TEXT NOT NULL
);

-- Webhooks that would take an order back in its life cycle, until a poll says what is true.
CREATE TABLE held_notifications (
  held_id INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT NOT NULL,
  status TEXT,
  known_status TEXT,
  digest TEXT NOT NULL,
  received_at TEXT NOT NULL,
  resolved_at TEXT,
  resolution TEXT CHECK (resolution IN ('confirmed', 'refuted')),
  payload TEXT NOT NULL,
  UNIQUE (order_id, digest)
);

-- digest: of source and payload, so that what is seen again is not kept again.
CREATE TABLE quarantine (
  quarantine_id INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  received_at TEXT NOT NULL,
  reason TEXT NOT NULL,
  digest TEXT NOT NULL UNIQUE,
  seen INTEGER NOT NULL DEFAULT 1,
  bytes INTEGER NOT NULL,
  payload NOT NULL
);

CREATE TABLE freshness (
  subject TEXT NOT NULL PRIMARY KEY,
  last_ok_at TEXT,
  last_try_at TEXT,
  state TEXT NOT NULL,
  message TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO freshness (subject, state, message) VALUES
  ('orders.poll', 'unknown', ''),
  ('orders.webhook', 'unknown', ''),
  ('catalog.sweep', 'unknown', ''),
  ('outbox.push', 'unknown', ''),
  ('auth', 'unknown', '');

CREATE TABLE alarms (
  key TEXT NOT NULL PRIMARY KEY,
  message TEXT NOT NULL,
  raised_at TEXT NOT NULL,
  changed_at TEXT NOT NULL
) WITHOUT ROWID;
