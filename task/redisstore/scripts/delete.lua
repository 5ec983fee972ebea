-- Deletes a task and its blob if it is due and has its expected version. Returns 1 if it was
-- deleted. If the task does not exist, its member is removed from the lists.
--
-- KEYS: task, changes, blob, the tasks that owe a cancellation, its four lists, the disposable
-- tasks of all accounts and of its account, the bytes of its account. ARGV: channel, message, member,
-- expected version, time before which the task must be due.
local version = redis.call('HGET', KEYS[1], 'version')
if not version then
  redis.call('ZREM', KEYS[4], ARGV[3])
  for i = 8, 10 do
    redis.call('ZREM', KEYS[i], ARGV[3])
  end
  return 0
end
local due = redis.call('ZSCORE', KEYS[8], ARGV[3])
if version ~= ARGV[4] or not due or tonumber(due) >= tonumber(ARGV[5]) then
  return 0
end
local size = redis.call('HGET', KEYS[1], 'size')
redis.call('UNLINK', KEYS[1], KEYS[3]) -- first: this frees memory, so that a full server accepts the rest
if size and redis.call('DECRBY', KEYS[11], size) <= 0 then
  redis.call('DEL', KEYS[11])
end
for i = 4, 10 do
  redis.call('ZREM', KEYS[i], ARGV[3])
end
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. ARGV[2])
return 1
