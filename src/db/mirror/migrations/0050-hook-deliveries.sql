-- The newest deliveries of each hook, so that a person sees what it took, when, and why not.
CREATE TABLE hook_deliveries (
  delivery_id INTEGER PRIMARY KEY,
  hook TEXT NOT NULL,
  -- The event of the order feed.
  seq INTEGER NOT NULL,
  -- Of its newest try.
  at TEXT NOT NULL,
  tries INTEGER NOT NULL,
  taken INTEGER NOT NULL,
  -- What the receiver said to that try; it never names the customer.
  answer TEXT NOT NULL
);

CREATE INDEX hook_deliveries_by_hook ON hook_deliveries (hook, delivery_id);

-- How often a person sent the cursor back, and when for the last time. A running loop compares the number before it
-- moves the cursor forward.
ALTER TABLE hooks ADD COLUMN rewinds INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hooks ADD COLUMN rewound_at TEXT;
