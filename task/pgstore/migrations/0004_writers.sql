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
