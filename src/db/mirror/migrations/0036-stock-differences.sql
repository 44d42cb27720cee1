-- Stocks of which the platform has another number than their last count wants, and since when.
CREATE TABLE stock_differences (
  sku TEXT NOT NULL,
  subsidiary_id TEXT NOT NULL,
  since_ms INTEGER NOT NULL,
  PRIMARY KEY (sku, subsidiary_id)
) WITHOUT ROWID;
-- What the platform had when the stock left with the call that carries it; NULL: nobody knew.
ALTER TABLE stock_counts ADD COLUMN call_had_qty REAL;
