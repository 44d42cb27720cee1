-- Why a branch is not heard although it asks, for whoever looks for it.
ALTER TABLE hub_branches ADD COLUMN refused TEXT CHECK (json_valid(refused));
