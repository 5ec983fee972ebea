-- Adds notes to the inbox of the journal.
--
-- KEYS: inbox.
-- ARGV: notes.
redis.call('RPUSH', KEYS[1], unpack(ARGV))
return 1
