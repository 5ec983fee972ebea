#!lua flags=allow-oom
-- Removes the oldest entries of the journal. Returns 1, or 0 if the anchor has changed since
-- the caller read it.
--
-- KEYS: ends, journal, then for each entry the list of the entries of its task. ARGV: expected
-- anchor, number and hash of the new anchor, number of the entry after it.
if (redis.call('HGET', KEYS[1], 'anchor_seq') or '0') ~= ARGV[1] then
  return 0
end
redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[4] .. '-0')
for i = 3, #KEYS do
  redis.call('LPOP', KEYS[i])
end
redis.call('HSET', KEYS[1], 'anchor_seq', ARGV[2], 'anchor_hash', ARGV[3])
return 1
