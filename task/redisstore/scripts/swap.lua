#!lua flags=allow-oom
-- Replaces a task with the expected version. Returns the result and the present state. A task
-- can end even if the memory is full, because the outcome of a call that ran must not be lost.
--
-- KEYS: task, changes, the four lists of the new version, the four lists of the previous
-- version, the inbox of the journal, the pending tasks of its group and of all groups, the
-- tasks that owe a cancellation, the bytes of the account, the disposable tasks of all accounts
-- and of this one, the bytes and the disposable tasks of the owner in format 5. ARGV: channel, message, member, due time, previous version, expected state,
-- whether the task has ended, whether it owes a cancellation, its bytes, whether it is
-- disposable, the number of notes, the notes, then the fields to set, starting with the new
-- state.
local old = redis.call('HMGET', KEYS[1], 'version', 'state', 'size', 'account')
local state = old[2]
if not old[1] then
  return {'missing', ''}
end
if old[1] ~= ARGV[5] then
  return {'overtaken', state}
end
local notes = tonumber(ARGV[11])
local to = ARGV[13 + notes]
if state ~= to and state ~= ARGV[6] then
  return {'unexpected', state}
end

if notes > 0 then
  redis.call('RPUSH', KEYS[11], unpack(ARGV, 12, 11 + notes))
end
redis.call('HSET', KEYS[1], unpack(ARGV, 12 + notes))
local size = old[3] or '0'
if not old[4] then -- the task was counted for its owner
  if redis.call('DECRBY', KEYS[18], size) <= 0 then
    redis.call('DEL', KEYS[18])
  end
  redis.call('ZREM', KEYS[19], ARGV[3])
  size = '0'
end
if size ~= ARGV[9] then
  redis.call('INCRBY', KEYS[15], string.format('%d', tonumber(ARGV[9]) - tonumber(size)))
end
if ARGV[10] == 'true' then
  redis.call('ZADD', KEYS[16], ARGV[4], ARGV[3])
  redis.call('ZADD', KEYS[17], ARGV[4], ARGV[3])
end
if ARGV[8] == 'true' then
  redis.call('ZADD', KEYS[14], 0, ARGV[3])
else
  redis.call('ZREM', KEYS[14], ARGV[3])
end
if ARGV[7] == 'true' then
  redis.call('ZREM', KEYS[12], ARGV[3])
  redis.call('ZREM', KEYS[13], ARGV[3])
end
if state ~= to then
  for i = 3, 6 do
    if KEYS[i] ~= KEYS[i + 4] then
      redis.call('ZREM', KEYS[i + 4], ARGV[3])
      redis.call('ZADD', KEYS[i], 0, ARGV[3])
    end
  end
end
redis.call('ZADD', KEYS[6], ARGV[4], ARGV[3])
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. ARGV[2])
return {'swapped', to}
