-- An outline is a task without its call, which may be large: enough for a list.
-- A row of its own is read without the document. A task that an earlier version
-- wrote has none until it changes.
CREATE TABLE outlines (
    task     TEXT    NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    version  INTEGER NOT NULL,  -- of the task
    document TEXT    NOT NULL
) WITHOUT ROWID;
