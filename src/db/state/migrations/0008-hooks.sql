-- The hooks that have begun, so that a mirror that is made anew does not take them for new ones. news_from: as in the
-- mirror's table `hooks`.
CREATE TABLE hooks (
  name TEXT PRIMARY KEY,
  news_from TEXT
) STRICT;

-- What a command asks the running daemon to do, and what came of it.
CREATE TABLE wishes (
  name TEXT PRIMARY KEY,
  wish TEXT NOT NULL
) STRICT;
