-- Stores that led to a branch which the configuration does not have now; they lead there again once it has it.
CREATE TABLE left_stores (
  store_id TEXT NOT NULL PRIMARY KEY,
  branch TEXT NOT NULL,
  by_hand INTEGER NOT NULL
) WITHOUT ROWID;
