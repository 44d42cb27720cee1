-- When the platform last took a price; that a reading of the catalogue saw it stands in `sweeps`.
ALTER TABLE skus ADD COLUMN price_confirmed_ms INTEGER NOT NULL DEFAULT 0;
