-- Names of fields, such as `children[].stock`, that nearly all products of the catalogue had at the end of some sweep.
CREATE TABLE product_fields (
  name TEXT NOT NULL PRIMARY KEY,
  first_seen_at TEXT NOT NULL,
  -- When no product had it any more; NULL while one has it.
  gone_since TEXT
) WITHOUT ROWID;
