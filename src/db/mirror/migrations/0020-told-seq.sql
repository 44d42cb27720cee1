-- The highest number of its own feed that each branch told. What is given later, also to another machine of that name,
-- must be higher.
ALTER TABLE feed_branches ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
