-- The newest count of each stock that a person gave up, also of a stock that no other count has reached.
CREATE TABLE given_up_counts (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;
INSERT INTO given_up_counts SELECT sku, subsidiary_id, dropped_version FROM stock_counts WHERE dropped_version > 0;
ALTER TABLE stock_counts DROP COLUMN dropped_version;
