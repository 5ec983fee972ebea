-- Tasks of owners that nobody has identified are counted by room as well.
ALTER TABLE tasks ADD COLUMN room text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX tasks_by_room ON tasks (pending, room) WHERE room > '';
