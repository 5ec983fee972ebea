-- An outline is a task without its call, which may be large: enough for a list.
-- A task that an earlier version wrote has none until it changes.
CREATE TABLE outlines (
    task     text   COLLATE "C" NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    version  bigint NOT NULL,  -- of the task
    document text   NOT NULL
);

CREATE TRIGGER refuse_older_writer BEFORE INSERT OR UPDATE OR DELETE ON outlines
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_older_writer();
