-- What happened to held calls: one row for each step, in the order in which
-- they were written, each with the hash of the one before.
CREATE TABLE journal (
    seq  INTEGER NOT NULL PRIMARY KEY,
    task TEXT    NOT NULL,
    prev BLOB    NOT NULL,
    hash BLOB    NOT NULL,
    note TEXT    NOT NULL
);

CREATE INDEX journal_by_task ON journal (task, seq);

-- One row: the last entry that was trimmed, and the last there is.
CREATE TABLE journal_ends (
    id          INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    anchor_seq  INTEGER NOT NULL,
    anchor_hash BLOB    NOT NULL,
    head_seq    INTEGER NOT NULL,
    head_hash   BLOB    NOT NULL
);

INSERT INTO journal_ends VALUES (1, 0, zeroblob(32), 0, zeroblob(32));
