-- A database of version 0011_accounts, as TestVersions made it when that was the newest.
CREATE TABLE schema_version (
		version    INTEGER   NOT NULL PRIMARY KEY,
		applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
SET thoughtgate.schema = 11; -- as the program of this version does
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
INSERT INTO schema_version (version) VALUES (1);
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
INSERT INTO schema_version (version) VALUES (2);
-- Named values that the gate keeps beside the held calls: its keys, and the
-- sessions of operators.
CREATE TABLE records (
    name    text   COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    expires bigint, -- in microseconds since 1970, or never
    value   bytea  NOT NULL
);

CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
INSERT INTO schema_version (version) VALUES (3);
-- Programs that know only an older schema must not write: they would leave out
-- what newer ones rely on. Every connection says which version its program
-- knows; programs of versions 1 to 3 say nothing.
CREATE FUNCTION refuse_older_writer() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    newest integer;
BEGIN
    SELECT max(version) INTO newest FROM schema_version;
    IF coalesce(nullif(current_setting('thoughtgate.schema', true), ''), '0')::integer < newest THEN
        RAISE EXCEPTION 'the tables have version %, which this program does not know: update it', newest
            USING ERRCODE = 'TG001', HINT = 'By hand, begin with SET thoughtgate.schema = ' || newest;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON tasks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON chunks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON slots
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON journal_ends
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON journal_inbox
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON records
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
INSERT INTO schema_version (version) VALUES (4);
-- Tasks of owners that nobody has identified are counted by room as well.
ALTER TABLE tasks ADD COLUMN room text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX tasks_by_room ON tasks (pending, room) WHERE room > '';
INSERT INTO schema_version (version) VALUES (5);
-- The few tasks whose upstream is still to be told that nobody waits for them
-- are found by an index of their own. Of the tasks that are there already some
-- are taken for such that are not, and some cannot be read here: whoever finds
-- them looks.
ALTER TABLE tasks ADD COLUMN owing boolean NOT NULL DEFAULT FALSE;

UPDATE tasks SET owing = TRUE WHERE state IN ('cancelled', 'expired')
    AND (document LIKE '%"cancellation":%' OR document LIKE '%"sealed:1:%');

CREATE INDEX tasks_owing ON tasks (created_at DESC, id) WHERE owing;
INSERT INTO schema_version (version) VALUES (6);
-- An outline is a task without its call, which may be large: enough for a list.
-- A task that an earlier version wrote has none until it changes.
CREATE TABLE outlines (
    task     text   COLLATE "C" NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    version  bigint NOT NULL,  -- of the task
    document text   NOT NULL
);

CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON outlines
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
INSERT INTO schema_version (version) VALUES (7);
-- Files beside the database are for SQLite. Servers keep all answers in chunks.
SELECT 1;
INSERT INTO schema_version (version) VALUES (8);
-- Records say how each tool was last approved, and results have a checksum. Programs of
-- earlier versions would not keep the former, and cannot read the latter.
SELECT 1;
INSERT INTO schema_version (version) VALUES (9);
-- The bytes that the tasks of an owner take are counted, and tasks that nobody will ask
-- for are found when there is no room. Those that are there already count with their
-- document alone, and are deleted when their time is over.
ALTER TABLE tasks ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN disposable BOOLEAN NOT NULL DEFAULT FALSE;

UPDATE tasks SET size = octet_length(document);

CREATE INDEX tasks_by_size ON tasks (owner, size);
CREATE INDEX tasks_disposable ON tasks (owner, due) WHERE disposable;
INSERT INTO schema_version (version) VALUES (10);
-- The bytes of a task count for its account: its group if it has one, otherwise its
-- owner. Else an agent without identity could fill the store with many sessions.
ALTER TABLE tasks ADD COLUMN account text COLLATE "C" NOT NULL DEFAULT '';

UPDATE tasks SET account = CASE WHEN room > '' THEN 'group:' || room ELSE 'owner:' || owner END;

DROP INDEX tasks_by_size;
DROP INDEX tasks_disposable;
CREATE INDEX tasks_by_size ON tasks (account, size);
CREATE INDEX tasks_disposable ON tasks (account, due) WHERE disposable;
INSERT INTO schema_version (version) VALUES (11);

DELETE FROM tasks;
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_approved', 'owner8', 'approved', true, '\x44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9', 1767323045000000, 1767326645000000, 2, '{"format":1,"id":"tg_approved","version":2,"state":"approved","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/8\"}}}"},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner8');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_cancelled', 'owner9', 'cancelled', false, '\x3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767326645000000, 2, '{"format":1,"id":"tg_cancelled","version":2,"state":"cancelled","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"cancelled","at":"2026-01-02T03:04:05Z","by":"ann"}],"failure":{"stage":"cancelled","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}', '', false, 2059, true, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_completed', 'owner9', 'completed', false, '\x3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767326645000000, 4, '{"format":1,"id":"tg_completed","version":4,"state":"completed","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/9\"}}}"},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"},{"from":"executing","to":"completed","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"result":{"kind":"ok","size":43,"chunks":2},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2210, false, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_executing', 'owner9', 'executing', true, '\x3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767323105000000, 3, '{"format":1,"id":"tg_executing","version":3,"state":"executing","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/9\"}}}"},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_failed', 'owner6', 'failed', false, '\x567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f', 1767323045000000, 1767326645000000, 3, '{"format":1,"id":"tg_failed","version":3,"state":"failed","owner":"owner6","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"failed","at":"2026-01-02T03:04:05Z","by":"gate 1","reason":"denied"}],"failure":{"stage":"policy_drift","reason":"denied","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}', '', false, 2059, false, 'owner:owner6');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_input_required', 'owner14', 'input_required', true, '\x9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043', 1767323045000000, 1767324845000000, 3, '{"format":1,"id":"tg_input_required","version":3,"state":"input_required","owner":"owner14","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/14\"}}}"},"digest":"9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","approvals":[{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"fine"}]},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,18]}', '', false, 2168, false, 'owner:owner14');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_rejected', 'owner8', 'rejected', false, '\x44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9', 1767323045000000, 1767326645000000, 3, '{"format":1,"id":"tg_rejected","version":3,"state":"rejected","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/8\"}}}"},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"},{"from":"input_required","to":"rejected","at":"2026-01-02T03:04:05Z","by":"bob","reason":"it''s wrong"}],"failure":{"stage":"approval_rejected","reason":"it''s wrong","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","rejection":{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"it''s wrong"}},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner8');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_working', 'owner7', 'working', true, '\xe58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39', 1767323045000000, 1767326645000000, 1, '{"format":1,"id":"tg_working","version":1,"state":"working","owner":"owner7","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/7\"}}}"},"digest":"e58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner7');

DELETE FROM chunks;
INSERT INTO chunks (task, n, data) VALUES ('tg_completed', 0, '\x7b22636f6e74656e74223a5b7b2274797065223a2274657874222c');
INSERT INTO chunks (task, n, data) VALUES ('tg_completed', 1, '\x2274657874223a22646f6e65227d5d7d');

DELETE FROM slots;
INSERT INTO slots (slot, pending) VALUES (0, 0);
INSERT INTO slots (slot, pending) VALUES (1, 0);
INSERT INTO slots (slot, pending) VALUES (2, 0);
INSERT INTO slots (slot, pending) VALUES (3, 0);
INSERT INTO slots (slot, pending) VALUES (4, 1);
INSERT INTO slots (slot, pending) VALUES (5, 0);
INSERT INTO slots (slot, pending) VALUES (6, 0);
INSERT INTO slots (slot, pending) VALUES (7, 0);
INSERT INTO slots (slot, pending) VALUES (8, 0);
INSERT INTO slots (slot, pending) VALUES (9, 1);
INSERT INTO slots (slot, pending) VALUES (10, 0);
INSERT INTO slots (slot, pending) VALUES (11, 0);
INSERT INTO slots (slot, pending) VALUES (12, 0);
INSERT INTO slots (slot, pending) VALUES (13, 0);
INSERT INTO slots (slot, pending) VALUES (14, 1);
INSERT INTO slots (slot, pending) VALUES (15, 1);

DELETE FROM journal;
INSERT INTO journal (seq, task, prev, hash, note) VALUES (1, '', '\x0000000000000000000000000000000000000000000000000000000000000000', '\xd689fad75f62c487ac85a080e4d6961e537ef538769218a1cf00c922ec6724f9', '{"at":"2026-01-02T03:04:05Z","step":"populated","actor":"the test"}');

DELETE FROM journal_ends;
INSERT INTO journal_ends (id, anchor_seq, anchor_hash, head_seq, head_hash) VALUES (1, 0, '\x0000000000000000000000000000000000000000000000000000000000000000', 1, '\xd689fad75f62c487ac85a080e4d6961e537ef538769218a1cf00c922ec6724f9');

DELETE FROM journal_inbox;

DELETE FROM records;
INSERT INTO records (name, version, expires, value) VALUES ('populated', 1, 1767323045000000, '\x6279207468652074657374');

DELETE FROM outlines;
INSERT INTO outlines (task, version, document) VALUES ('tg_approved', 2, '{"format":1,"id":"tg_approved","version":2,"state":"approved","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_cancelled', 2, '{"format":1,"id":"tg_cancelled","version":2,"state":"cancelled","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"cancelled","at":"2026-01-02T03:04:05Z","by":"ann"}],"failure":{"stage":"cancelled","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_completed', 4, '{"format":1,"id":"tg_completed","version":4,"state":"completed","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"},{"from":"executing","to":"completed","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"result":{"kind":"ok","size":43,"chunks":2},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_executing', 3, '{"format":1,"id":"tg_executing","version":3,"state":"executing","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_failed', 3, '{"format":1,"id":"tg_failed","version":3,"state":"failed","owner":"owner6","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"failed","at":"2026-01-02T03:04:05Z","by":"gate 1","reason":"denied"}],"failure":{"stage":"policy_drift","reason":"denied","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_input_required', 3, '{"format":1,"id":"tg_input_required","version":3,"state":"input_required","owner":"owner14","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","approvals":[{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"fine"}]},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_rejected', 3, '{"format":1,"id":"tg_rejected","version":3,"state":"rejected","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"},{"from":"input_required","to":"rejected","at":"2026-01-02T03:04:05Z","by":"bob","reason":"it''s wrong"}],"failure":{"stage":"approval_rejected","reason":"it''s wrong","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","rejection":{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"it''s wrong"}},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_working', 1, '{"format":1,"id":"tg_working","version":1,"state":"working","owner":"owner7","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"e58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
