-- Large answers are kept in files beside the database: one for each task that is
-- noted here, with the room that it may take. A task is noted before its file is made.
CREATE TABLE results (
    task  TEXT    NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

-- One row: the directory of the files. Another database in the place of this one has
-- another directory, so that it does not take these files for its own.
CREATE TABLE results_directory (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    name TEXT    NOT NULL
);

INSERT INTO results_directory VALUES (1, lower(hex(randomblob(8))));
