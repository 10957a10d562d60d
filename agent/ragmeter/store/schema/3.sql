-- Version 3 added the stratum and the cheap scores of a drawn trace.
ALTER TABLE drawn ADD COLUMN stratum TEXT NOT NULL DEFAULT '';
ALTER TABLE drawn ADD COLUMN cheap TEXT NOT NULL DEFAULT '{}';
