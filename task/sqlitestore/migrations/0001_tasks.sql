-- A task is one document. The other columns repeat what queries need of it.
CREATE TABLE tasks (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    pending    BOOLEAN NOT NULL,  -- whether state is not terminal
    digest     BLOB    NOT NULL,
    created_at INTEGER NOT NULL,  -- microseconds since 1970, like due
    due        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    document   TEXT    NOT NULL
);

CREATE INDEX tasks_by_owner  ON tasks (owner, pending, created_at DESC, id, state);
CREATE INDEX tasks_by_age    ON tasks (pending, created_at DESC, id, state);
CREATE INDEX tasks_by_digest ON tasks (digest, owner, pending);
CREATE INDEX tasks_by_due    ON tasks (pending, due);

-- The blobs of tasks whose answer is too large for the document.
CREATE TABLE chunks (
    task TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    n    INTEGER NOT NULL,
    data BLOB    NOT NULL,
    PRIMARY KEY (task, n)
);
