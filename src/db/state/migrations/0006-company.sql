-- Whose tokens these are, by what they say of themselves, so that another company's are not taken for them.
CREATE TABLE company (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  company_id TEXT NOT NULL
) STRICT;
