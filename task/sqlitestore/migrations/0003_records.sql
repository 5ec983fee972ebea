-- Named values that the gate keeps beside the held calls: its keys, and the
-- sessions of operators.
CREATE TABLE records (
    name    TEXT    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    expires INTEGER, -- in microseconds since 1970, or never
    value   BLOB    NOT NULL
) WITHOUT ROWID;

CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
