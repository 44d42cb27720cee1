-- How far the mirror's feed had got when that was noted last. The mirror can be lost, and a number is never given twice.
CREATE TABLE feed (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  seq INTEGER NOT NULL
) STRICT;
