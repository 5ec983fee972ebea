#!lua flags=allow-oom
-- Moves the first notes of the inbox to the end of the journal. Returns 1, or 0 if the head has
-- changed since the caller chained the notes to it. Every script that takes notes from the
-- inbox changes the head, so with the same head the notes are the same. Notes can be moved even
-- if the memory is full.
--
-- KEYS: ends, inbox, journal, then for each entry the list of the entries of its task. ARGV:
-- expected head, hash of the new head, then for each entry its number, the previous hash, its
-- hash and the note.
if (redis.call('HGET', KEYS[1], 'head_seq') or '0') ~= ARGV[1] then
  return 0
end
local at, seq = 3, ARGV[1]
for i = 4, #KEYS do
  seq = ARGV[at]
  redis.call('XADD', KEYS[3], seq .. '-0', 'prev', ARGV[at + 1], 'hash', ARGV[at + 2], 'note', ARGV[at + 3])
  redis.call('RPUSH', KEYS[i], seq)
  at = at + 4
end
redis.call('LPOP', KEYS[2], #KEYS - 3)
redis.call('HSET', KEYS[1], 'head_seq', seq, 'head_hash', ARGV[2])
return 1
