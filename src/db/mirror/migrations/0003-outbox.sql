-- Changes on their way to the platform, and what became of them. While a change waits there is one row for its
-- target: later values go into it. A change that a guard rail holds waits beside it, until a person decides.
CREATE TABLE outbox (
  change_id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('product', 'stock')),
  target TEXT NOT NULL,
  -- Changes of one kind that share it are never under way in two calls: the product, where it is known.
  conflict_key TEXT NOT NULL,
  -- The platform's own item shape. For a stock the quantity as the POS counted it; `sent_qty` is what was sent.
  body TEXT NOT NULL,
  -- Names of the values in the body; a change with the same ones takes the place of a waiting one whole.
  fields TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'sending', 'done', 'rejected', 'superseded')),
  attempts INTEGER NOT NULL DEFAULT 0,
  message TEXT,
  created_at TEXT NOT NULL,
  settled_at TEXT,
  -- Sold out before all else, then the longest waiting.
  priority INTEGER NOT NULL,
  queue_seq INTEGER NOT NULL,
  -- 'mirror': the target is known; 'as-is': the platform decides; 'needs-read': read the product first.
  basis TEXT NOT NULL CHECK (basis IN ('mirror', 'as-is', 'needs-read')),
  sku TEXT,
  subsidiary_id TEXT,
  -- The guard rail that holds it; NULL: none.
  held_guard TEXT,
  -- Way in ('inbox', 'http', 'cli', 'hold-back'), and how the sender names the change there.
  source TEXT NOT NULL,
  reference TEXT,
  -- Rises with every value that is taken in; the number of earlier values that this row replaced.
  version INTEGER NOT NULL,
  -- JSON: the version of each field, where they differ.
  field_versions TEXT,
  replaced INTEGER NOT NULL DEFAULT 0,
  superseded_by INTEGER,
  -- When a stock was set to zero that had not been.
  zeroed_at TEXT,
  -- Newest event of the order feed when the value was handed over.
  as_of_seq INTEGER NOT NULL DEFAULT 0,
  -- The call it is under way in, and what was sent of a stock.
  call_id INTEGER,
  sent_qty ANY,
  held_back ANY,
  sent_as_of_seq INTEGER
) STRICT;

CREATE UNIQUE INDEX outbox_waiting ON outbox (kind, target) WHERE state = 'pending' AND held_guard IS NULL;
CREATE UNIQUE INDEX outbox_held ON outbox (kind, target) WHERE state = 'pending' AND held_guard IS NOT NULL;
CREATE INDEX outbox_line ON outbox (kind, priority, queue_seq)
  WHERE state = 'pending' AND held_guard IS NULL AND basis <> 'needs-read';
CREATE INDEX outbox_sending ON outbox (kind, conflict_key) WHERE state = 'sending';
CREATE INDEX outbox_siblings ON outbox (conflict_key) WHERE state = 'pending' AND kind = 'product';
CREATE INDEX outbox_unresolved ON outbox (basis, change_id)
  WHERE state IN ('pending', 'sending') AND basis <> 'mirror';
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX outbox_rejected ON outbox (change_id) WHERE state = 'rejected';
CREATE INDEX outbox_rejected_target ON outbox (kind, target) WHERE state = 'rejected';
CREATE INDEX outbox_sent ON outbox (kind, conflict_key, version) WHERE state IN ('sending', 'done');
CREATE INDEX outbox_zeroed ON outbox (zeroed_at) WHERE zeroed_at IS NOT NULL;

INSERT INTO marks (name, value) VALUES ('outbox.version', 0), ('outbox.call', 0), ('orders.seen', -1), ('orders.corrected', 0);

-- What a POS took in through the inbox, until it is gone from there; so that a repeated copy changes nothing.
CREATE TABLE inbox_copied (
  inbox_key TEXT PRIMARY KEY,
  copied_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Orders that the POS has booked.
CREATE TABLE order_acks (
  order_id TEXT PRIMARY KEY,
  acked_at TEXT NOT NULL,
  source TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- For stock that is already sold: orders that no count includes yet, or that an older count does not.
CREATE TABLE unbooked_orders (
  order_id TEXT PRIMARY KEY,
  first_seq INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The last count that was sent of each stock while what is already sold is held back. One from which nothing was
-- held back stays for a while, for orders that are heard of late.
CREATE TABLE held_back_counts (
  target TEXT PRIMARY KEY,
  body TEXT NOT NULL,
  conflict_key TEXT NOT NULL,
  basis TEXT NOT NULL,
  sku TEXT,
  subsidiary_id TEXT,
  as_of_seq INTEGER NOT NULL,
  sent_qty ANY NOT NULL,
  held_back ANY NOT NULL,
  -- When the platform had it for certain.
  sent_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX held_back_counts_by_place ON held_back_counts (sku, subsidiary_id);
CREATE INDEX held_back_counts_not_zero ON held_back_counts (target) WHERE held_back <> 0;
