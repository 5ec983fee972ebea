-- The bytes that the tasks of an owner take are counted, and tasks that nobody will ask
-- for are found when there is no room. Those that are there already count with their
-- document alone, and are deleted when their time is over.
ALTER TABLE tasks ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN disposable BOOLEAN NOT NULL DEFAULT FALSE;

UPDATE tasks SET size = length(document);

CREATE INDEX tasks_by_size ON tasks (owner, size);
CREATE INDEX tasks_disposable ON tasks (owner, due) WHERE disposable;
