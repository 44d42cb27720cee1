-- Hand-overs of which nobody knows yet whether the inbox held older rows then: rows inserted before `handed_at` come
-- before the versions from `first_version` on. Emptied when the inbox is seen empty.
CREATE TABLE hand_overs (
  first_version INTEGER PRIMARY KEY,
  last_version INTEGER NOT NULL,
  handed_at TEXT NOT NULL
);
