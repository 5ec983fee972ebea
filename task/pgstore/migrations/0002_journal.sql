-- What happened to held calls: one row for each step, in the order in which
-- they were written, each with the hash of the one before.
CREATE TABLE journal (
    seq  bigint NOT NULL PRIMARY KEY,
    task text   COLLATE "C" NOT NULL,
    prev bytea  NOT NULL,
    hash bytea  NOT NULL,
    note text   NOT NULL
);

CREATE INDEX journal_by_task ON journal (task, seq);

-- One row: the last entry that was trimmed, and the last there is.
CREATE TABLE journal_ends (
    id          integer NOT NULL PRIMARY KEY CHECK (id = 1),
    anchor_seq  bigint  NOT NULL,
    anchor_hash bytea   NOT NULL,
    head_seq    bigint  NOT NULL,
    head_hash   bytea   NOT NULL
) WITH (fillfactor = 10);

INSERT INTO journal_ends VALUES (1, 0, decode(repeat('00', 32), 'hex'), 0, decode(repeat('00', 32), 'hex'));

-- Notes that were written together with a change and have no place in the
-- journal yet. Giving them one takes a lock that all writers would wait for.
CREATE TABLE journal_inbox (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    note text   NOT NULL
);
