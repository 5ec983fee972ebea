-- Named values that the gate keeps beside the held calls: its keys, and the
-- sessions of operators.
CREATE TABLE records (
    name    text   COLLATE "C" NOT NULL PRIMARY KEY,
    version bigint NOT NULL,
    expires bigint, -- in microseconds since 1970, or never
    value   bytea  NOT NULL
);

CREATE INDEX records_by_expiry ON records (expires) WHERE expires IS NOT NULL;
