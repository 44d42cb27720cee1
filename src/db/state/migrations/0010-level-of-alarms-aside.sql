-- How serious an alarm is that the mirror did not take; NULL: as its finding is.
ALTER TABLE alarms_aside ADD COLUMN level TEXT;
