-- Returns the first members after a position from each list, as one snapshot.
--
-- KEYS: lists. ARGV: position, number of members.
local found = {}
for _, key in ipairs(KEYS) do
  for _, member in ipairs(redis.call('ZRANGE', key, ARGV[1], '+', 'BYLEX', 'LIMIT', 0, ARGV[2])) do
    found[#found + 1] = member
  end
end
return found
