-- The bytes of a task count for its account: its group if it has one, otherwise its
-- owner. Else an agent without identity could fill the store with many sessions.
ALTER TABLE tasks ADD COLUMN account text COLLATE "C" NOT NULL DEFAULT '';

UPDATE tasks SET account = CASE WHEN room > '' THEN 'group:' || room ELSE 'owner:' || owner END;

DROP INDEX tasks_by_size;
DROP INDEX tasks_disposable;
CREATE INDEX tasks_by_size ON tasks (account, size);
CREATE INDEX tasks_disposable ON tasks (account, due) WHERE disposable;
