-- Who handed a change over, such as `inbox`, `cli ana` or `http 127.0.0.1`; NULL: taken before this was noted.
ALTER TABLE outbox ADD COLUMN origin TEXT;

-- What operators did. It holds no secret and nothing of a customer.
CREATE TABLE audit (
  audit_id INTEGER PRIMARY KEY,
  at TEXT NOT NULL,
  who TEXT NOT NULL,
  action TEXT NOT NULL,
  -- What it was done to, such as `change 12`, and what came of it.
  subject TEXT,
  detail TEXT
);
