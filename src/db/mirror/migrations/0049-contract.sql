-- The view names the version of the tables on which a POS may rely, so that a till can check that it was written for
-- it. The version rises when a promised table or column is removed or changes its meaning, and not when one is added.
CREATE VIEW contract AS SELECT 1 AS version, '2026-11-24' AS since;
