-- When the objects of a silent broker were listed last: what it had begun to upload may be stored later.
ALTER TABLE uploaders ADD COLUMN looked timestamptz;
