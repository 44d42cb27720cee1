-- 'amber' or 'red' of an alarm that can be either; NULL: as its key says.
ALTER TABLE alarms ADD COLUMN level TEXT;
