#!lua flags=allow-oom
-- Replaces a task of the version before. Returns what became of it, and the
-- state that it is in. Memory that is full does not keep a task from ending:
-- a call that ran must not be forgotten.
--
-- KEYS: task, changes, the four places of the new version, the four places
-- that it is expected to leave, the inbox of the journal, the pending tasks of
-- its room and of all rooms, the tasks that owe something.
-- ARGV: channel, message, member, due, version before, state expected, whether
-- it has ended, whether it owes something, how many notes, the notes, then the
-- fields to set, of which the first is the new state.
local old = redis.call('HMGET', KEYS[1], 'version', 'state')
local state = old[2]
if not old[1] then
  return {'missing', ''}
end
if old[1] ~= ARGV[5] then
  return {'overtaken', state}
end
local notes = tonumber(ARGV[9])
local to = ARGV[11 + notes]
if state ~= to and state ~= ARGV[6] then
  return {'unexpected', state}
end

if notes > 0 then
  redis.call('RPUSH', KEYS[11], unpack(ARGV, 10, 9 + notes))
end
redis.call('HSET', KEYS[1], unpack(ARGV, 10 + notes))
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
