-- Deletes a task and its blob if it is due, and has not changed since it was
-- looked at. Returns 1 if it did. A task that is gone leaves the list it was
-- found in.
--
-- KEYS: task, changes, blob, the tasks that owe something, its four places.
-- ARGV: channel, note, member, version, time.
local version = redis.call('HGET', KEYS[1], 'version')
if not version then
  redis.call('ZREM', KEYS[4], ARGV[3])
  redis.call('ZREM', KEYS[8], ARGV[3])
  return 0
end
local due = redis.call('ZSCORE', KEYS[8], ARGV[3])
if version ~= ARGV[4] or not due or tonumber(due) >= tonumber(ARGV[5]) then
  return 0
end
redis.call('UNLINK', KEYS[1], KEYS[3])
for i = 4, 8 do
  redis.call('ZREM', KEYS[i], ARGV[3])
end
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. ARGV[2])
return 1
