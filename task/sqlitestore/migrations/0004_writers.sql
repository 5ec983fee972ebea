-- PostgreSQL refuses writers that do not know the newest version. A file has one
-- process at a time, which looks at the version when it opens the file.
SELECT 1;
