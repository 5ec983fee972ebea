-- A task is one document. The other columns repeat what queries need of it.
CREATE TABLE tasks (
    id         text    COLLATE "C" NOT NULL PRIMARY KEY,
    owner      text    COLLATE "C" NOT NULL,
    state      text    COLLATE "C" NOT NULL,
    pending    boolean NOT NULL,  -- whether state is not terminal
    digest     bytea   NOT NULL,
    created_at bigint  NOT NULL,  -- microseconds since 1970, like due
    due        bigint  NOT NULL,
    version    bigint  NOT NULL,
    document   text    NOT NULL
);

CREATE INDEX tasks_by_owner  ON tasks (owner, pending, created_at DESC, id, state);
CREATE INDEX tasks_by_age    ON tasks (pending, created_at DESC, id, state);
CREATE INDEX tasks_by_digest ON tasks (digest, owner, pending);
CREATE INDEX tasks_by_due    ON tasks (pending, due);

-- The blobs of tasks whose answer is too large for the document.
CREATE TABLE chunks (
    task text   COLLATE "C" NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    n    bigint NOT NULL,
    data bytea  NOT NULL,
    PRIMARY KEY (task, n)
);

-- How many tasks are pending is the sum of all slots. A task counts in the
-- slot that its id falls into, so that writers seldom wait for each other.
CREATE TABLE slots (
    slot    integer NOT NULL PRIMARY KEY,
    pending bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO slots SELECT slot, 0 FROM generate_series(0, 15) AS slot;
