-- A database of version 0011_accounts, as TestVersions made it when that was the newest.
CREATE TABLE schema_version (
		version    INTEGER   NOT NULL PRIMARY KEY,
		applied_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
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
INSERT INTO schema_version (version) VALUES (1);
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
INSERT INTO schema_version (version) VALUES (2);
-- Named values that the gate keeps beside the held calls: its keys, and the
-- sessions of operators.
CREATE TABLE records (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    expires INTEGER, -- in microseconds since 1970, or never
    value   BLOB    NOT NULL
) WITHOUT ROWID;

CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
INSERT INTO schema_version (version) VALUES (3);
-- PostgreSQL refuses writers that do not know the newest version. A file has one
-- process at a time, which looks at the version when it opens the file.
SELECT 1;
INSERT INTO schema_version (version) VALUES (4);
-- Tasks of owners that nobody has identified are counted by room as well.
ALTER TABLE tasks ADD COLUMN room TEXT NOT NULL DEFAULT '';

CREATE INDEX tasks_by_room ON tasks (pending, room) WHERE room > '';
INSERT INTO schema_version (version) VALUES (5);
-- The few tasks whose upstream is still to be told that nobody waits for them
-- are found by an index of their own. Of the tasks that are there already some
-- are taken for such that are not, and some cannot be read here: whoever finds
-- them looks.
ALTER TABLE tasks ADD COLUMN owing BOOLEAN NOT NULL DEFAULT FALSE;

UPDATE tasks SET owing = TRUE WHERE state IN ('cancelled', 'expired')
    AND (document LIKE '%"cancellation":%' OR document LIKE '%"sealed:1:%');

CREATE INDEX tasks_owing ON tasks (created_at DESC, id) WHERE owing;
INSERT INTO schema_version (version) VALUES (6);
-- An outline is a task without its call, which may be large: enough for a list.
-- A row of its own is read without the document. A task that an earlier version
-- wrote has none until it changes.
CREATE TABLE outlines (
    task     TEXT    NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    version  INTEGER NOT NULL,  -- of the task
    document TEXT    NOT NULL
) WITHOUT ROWID;
INSERT INTO schema_version (version) VALUES (7);
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
INSERT INTO schema_version (version) VALUES (8);
-- Records say how each tool was last approved, and results have a checksum. Programs of
-- earlier versions would not keep the former, and cannot read the latter.
SELECT 1;
INSERT INTO schema_version (version) VALUES (9);
-- The bytes that the tasks of an owner take are counted, and tasks that nobody will ask
-- for are found when there is no room. Those that are there already count with their
-- document alone, and are deleted when their time is over.
ALTER TABLE tasks ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN disposable BOOLEAN NOT NULL DEFAULT FALSE;

UPDATE tasks SET size = length(document);

CREATE INDEX tasks_by_size ON tasks (owner, size);
CREATE INDEX tasks_disposable ON tasks (owner, due) WHERE disposable;
INSERT INTO schema_version (version) VALUES (10);
-- The bytes of a task count for its account: its group if it has one, otherwise its
-- owner. Else an agent without identity could fill the store with many sessions.
ALTER TABLE tasks ADD COLUMN account TEXT NOT NULL DEFAULT '';

UPDATE tasks SET account = CASE WHEN room > '' THEN 'group:' || room ELSE 'owner:' || owner END;

DROP INDEX tasks_by_size;
DROP INDEX tasks_disposable;
CREATE INDEX tasks_by_size ON tasks (account, size);
CREATE INDEX tasks_disposable ON tasks (account, due) WHERE disposable;
INSERT INTO schema_version (version) VALUES (11);

DELETE FROM tasks;
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_approved', 'owner8', 'approved', true, X'44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9', 1767323045000000, 1767326645000000, 2, '{"format":1,"id":"tg_approved","version":2,"state":"approved","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/8\"}}}"},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner8');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_cancelled', 'owner9', 'cancelled', false, X'3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767326645000000, 2, '{"format":1,"id":"tg_cancelled","version":2,"state":"cancelled","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"cancelled","at":"2026-01-02T03:04:05Z","by":"ann"}],"failure":{"stage":"cancelled","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}', '', false, 2059, true, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_completed', 'owner9', 'completed', false, X'3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767326645000000, 4, '{"format":1,"id":"tg_completed","version":4,"state":"completed","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/9\"}}}"},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"},{"from":"executing","to":"completed","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"result":{"kind":"ok","size":43,"chunks":2},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2210, false, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_executing', 'owner9', 'executing', true, X'3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb', 1767323045000000, 1767323105000000, 3, '{"format":1,"id":"tg_executing","version":3,"state":"executing","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/9\"}}}"},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner9');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_failed', 'owner6', 'failed', false, X'567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f', 1767323045000000, 1767326645000000, 3, '{"format":1,"id":"tg_failed","version":3,"state":"failed","owner":"owner6","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"failed","at":"2026-01-02T03:04:05Z","by":"gate 1","reason":"denied"}],"failure":{"stage":"policy_drift","reason":"denied","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}', '', false, 2059, false, 'owner:owner6');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_input_required', 'owner14', 'input_required', true, X'9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043', 1767323045000000, 1767324845000000, 3, '{"format":1,"id":"tg_input_required","version":3,"state":"input_required","owner":"owner14","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/14\"}}}"},"digest":"9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","approvals":[{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"fine"}]},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,18]}', '', false, 2168, false, 'owner:owner14');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_rejected', 'owner8', 'rejected', false, X'44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9', 1767323045000000, 1767326645000000, 3, '{"format":1,"id":"tg_rejected","version":3,"state":"rejected","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/8\"}}}"},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"},{"from":"input_required","to":"rejected","at":"2026-01-02T03:04:05Z","by":"bob","reason":"it''s wrong"}],"failure":{"stage":"approval_rejected","reason":"it''s wrong","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","rejection":{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"it''s wrong"}},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner8');
INSERT INTO tasks (id, owner, state, pending, digest, created_at, due, version, document, room, owing, size, disposable, account) VALUES ('tg_working', 'owner7', 'working', true, X'e58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39', 1767323045000000, 1767326645000000, 1, '{"format":1,"id":"tg_working","version":1,"state":"working","owner":"owner7","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"delete_file\",\"arguments\":{\"path\":\"/tmp/7\"}}}"},"digest":"e58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z","argumentsAt":[89,17]}', '', false, 2167, false, 'owner:owner7');

DELETE FROM chunks;
INSERT INTO chunks (task, n, data) VALUES ('tg_completed', 0, X'7b22636f6e74656e74223a5b7b2274797065223a2274657874222c');
INSERT INTO chunks (task, n, data) VALUES ('tg_completed', 1, X'2274657874223a22646f6e65227d5d7d');

DELETE FROM journal;
INSERT INTO journal (seq, task, prev, hash, note) VALUES (1, '', X'0000000000000000000000000000000000000000000000000000000000000000', X'd689fad75f62c487ac85a080e4d6961e537ef538769218a1cf00c922ec6724f9', '{"at":"2026-01-02T03:04:05Z","step":"populated","actor":"the test"}');

DELETE FROM journal_ends;
INSERT INTO journal_ends (id, anchor_seq, anchor_hash, head_seq, head_hash) VALUES (1, 0, X'0000000000000000000000000000000000000000000000000000000000000000', 1, X'd689fad75f62c487ac85a080e4d6961e537ef538769218a1cf00c922ec6724f9');

DELETE FROM records;
INSERT INTO records (name, version, expires, value) VALUES ('populated', 1, 1767323045000000, X'6279207468652074657374');

DELETE FROM outlines;
INSERT INTO outlines (task, version, document) VALUES ('tg_approved', 2, '{"format":1,"id":"tg_approved","version":2,"state":"approved","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_cancelled', 2, '{"format":1,"id":"tg_cancelled","version":2,"state":"cancelled","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"cancelled","at":"2026-01-02T03:04:05Z","by":"ann"}],"failure":{"stage":"cancelled","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_completed', 4, '{"format":1,"id":"tg_completed","version":4,"state":"completed","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"},{"from":"executing","to":"completed","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"result":{"kind":"ok","size":43,"chunks":2},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_executing', 3, '{"format":1,"id":"tg_executing","version":3,"state":"executing","owner":"owner9","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"3ad2e1b6b0465be00d177568fb188c9ef2ba7ae315288253788fa07d018f06eb","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"executing","at":"2026-01-02T03:04:05Z","by":"gate 1"}],"execution":{"executor":"gate 1","startedAt":"2026-01-02T03:04:05Z","leaseUntil":"2026-01-02T03:05:05Z"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_failed', 3, '{"format":1,"id":"tg_failed","version":3,"state":"failed","owner":"owner6","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"567f8a8f9abc6832bb61ef1d06ab0c679b6a3edc343e8296a8d6dd3dd1d83c8f","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"approved","at":"2026-01-02T03:04:05Z","by":"gate","reason":"none needed"},{"from":"approved","to":"failed","at":"2026-01-02T03:04:05Z","by":"gate 1","reason":"denied"}],"failure":{"stage":"policy_drift","reason":"denied","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_input_required', 3, '{"format":1,"id":"tg_input_required","version":3,"state":"input_required","owner":"owner14","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"9bada1fd89c7e7d11181e16a14dfd13547750aa447f016f93a26eb6abaa6a043","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"}],"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","approvals":[{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"fine"}]},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_rejected', 3, '{"format":1,"id":"tg_rejected","version":3,"state":"rejected","owner":"owner8","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"44eace42e54af6f8b2382f25315f8b1d2fe554bfc4705ca144d86d6c5a9809e9","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"transitions":[{"from":"working","to":"input_required","at":"2026-01-02T03:04:05Z","by":"gate"},{"from":"input_required","to":"rejected","at":"2026-01-02T03:04:05Z","by":"bob","reason":"it''s wrong"}],"failure":{"stage":"approval_rejected","reason":"it''s wrong","ran":"no"},"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"approval":{"quorum":2,"deadline":"2026-01-02T03:34:05Z","rejection":{"by":"bob","at":"2026-01-02T03:04:05Z","reason":"it''s wrong"}},"contactAt":"2026-01-02T03:04:05Z"}');
INSERT INTO outlines (task, version, document) VALUES ('tg_working', 1, '{"format":1,"id":"tg_working","version":1,"state":"working","owner":"owner7","call":{"upstream":"files","method":"tools/call","name":"delete_file","message":""},"digest":"e58a06fb1b1818b195a30ca57f82525877112ad530ceca744873f1cb56050a39","createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:05Z","expiresAt":"2026-01-02T04:04:05Z","pollInterval":1000000,"workflow":"ops","verdict":{"reason":"rule 3","snapshot":"s1"},"contactAt":"2026-01-02T03:04:05Z"}');

DELETE FROM results;

DELETE FROM results_directory;
INSERT INTO results_directory (id, name) VALUES (1, '6ae9bc29a06c57fe');
