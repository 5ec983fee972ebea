-- Stores or deletes a record. Returns 1 if the record changed.
--
-- KEYS: record, names of all records, names by expiry. ARGV: name, expected version (0 if the
-- record must not exist, * for any version), and to store it: version, expiry in microseconds
-- or an empty text, value.
local version = redis.call('HGET', KEYS[1], 'version') or '0'
if ARGV[2] ~= '*' and version ~= ARGV[2] then
  return 0
end
if #ARGV == 2 then
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
  return redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'version', ARGV[3], 'expires', ARGV[4], 'value', ARGV[5])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
if ARGV[4] == '' then
  redis.call('ZREM', KEYS[3], ARGV[1])
else
  redis.call('ZADD', KEYS[3], ARGV[4], ARGV[1])
end
return 1
