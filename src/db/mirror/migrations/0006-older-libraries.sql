-- STRICT tables cannot be read by a SQLite from before 2021, and many a POS has an older one. A row is the same bytes
-- without it, so the text of the tables is all that changes: a mirror of a gigabyte is not written anew. ANY goes with
-- it: a column without a type keeps a number a number and a text a text, as ANY did. What orders things has to be a
-- whole number as before, since a text would be above them all.
PRAGMA writable_schema = ON;
UPDATE sqlite_master SET sql =
  replace(replace(replace(replace(replace(replace(sql,
    ' ANY', ''),
    ') STRICT, WITHOUT ROWID', ') WITHOUT ROWID'),
    ') STRICT', ')'),
    'TEXT PRIMARY KEY', 'TEXT NOT NULL PRIMARY KEY'),
    ' version INTEGER NOT NULL', ' version INTEGER NOT NULL CHECK (typeof(version) = ''integer'')'),
    ' value INTEGER NOT NULL', ' value INTEGER NOT NULL CHECK (typeof(value) = ''integer'')')
  WHERE type = 'table' AND sql LIKE '%STRICT%';
PRAGMA writable_schema = RESET;
-- Every other connection reads the schema again once a table was made or dropped.
CREATE TABLE schema_changed (x);
DROP TABLE schema_changed;

-- Acknowledgements of CHAR columns that were kept with their blanks, and so belonged to no order.
INSERT OR IGNORE INTO order_acks (order_id, acked_at, source)
  SELECT trim(order_id), acked_at, source FROM order_acks WHERE order_id <> trim(order_id);
DELETE FROM order_acks WHERE order_id <> trim(order_id);
UPDATE unbooked_orders SET acknowledged = 1 WHERE order_id IN (SELECT order_id FROM order_acks);
