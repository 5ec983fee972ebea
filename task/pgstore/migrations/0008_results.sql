-- Files beside the database are for SQLite. Servers keep all answers in chunks.
SELECT 1;
