-- Adds a task within limits. Returns nil if the task was added, 1 if a task with this ID
-- exists, and otherwise the numbers of pending tasks.
--
-- KEYS: task, changes, its four lists, all pending tasks by due time, the pending tasks of the
-- same call, the inbox of the journal, the pending tasks of the same group and of all groups,
-- the tasks that owe a cancellation, the bytes of the account, the disposable tasks of all
-- accounts and of this one, the pending tasks of the same owner in each state. ARGV: channel, message,
-- member, due time, limit per owner, total limit, unique, limit per group, limit of all groups,
-- whether the task has a group, whether it owes a cancellation, limit of the account's bytes, its
-- bytes, whether it is disposable, the number of notes, the notes, then the fields of the task.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 1
end

local perOwner, most, unique = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == 'true'
local total, owner, same = redis.call('ZCARD', KEYS[7]), 0, ''
for i = 16, #KEYS do
  owner = owner + redis.call('ZCARD', KEYS[i])
end
if unique then
  local first = redis.call('ZRANGE', KEYS[8], 0, 0)
  same = first[1] or ''
end
local perRoom, allRooms, counted = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10] == 'true'
local room, rooms = 0, 0
if counted then
  room, rooms = redis.call('ZCARD', KEYS[10]), redis.call('ZCARD', KEYS[11])
end
local mostBytes, size = tonumber(ARGV[12]), tonumber(ARGV[13])
local bytes = tonumber(redis.call('GET', KEYS[13]) or '0')
if same ~= '' or (perOwner > 0 and owner >= perOwner) or (most > 0 and total >= most)
  or (perRoom > 0 and room >= perRoom) or (allRooms > 0 and rooms >= allRooms)
  or (mostBytes > 0 and bytes + size > mostBytes) then
  return {tostring(owner), tostring(total), tostring(room), tostring(rooms), string.format('%d', bytes), same}
end

local notes = tonumber(ARGV[15])
if notes > 0 then
  redis.call('RPUSH', KEYS[9], unpack(ARGV, 16, 15 + notes))
end
redis.call('HSET', KEYS[1], unpack(ARGV, 16 + notes))
redis.call('INCRBY', KEYS[13], ARGV[13])
if ARGV[14] == 'true' then
  redis.call('ZADD', KEYS[14], ARGV[4], ARGV[3])
  redis.call('ZADD', KEYS[15], ARGV[4], ARGV[3])
end
if ARGV[11] == 'true' then
  redis.call('ZADD', KEYS[12], 0, ARGV[3])
end
if counted then
  redis.call('ZADD', KEYS[10], 0, ARGV[3])
  redis.call('ZADD', KEYS[11], 0, ARGV[3])
end
redis.call('ZADD', KEYS[3], 0, ARGV[3])
redis.call('ZADD', KEYS[4], 0, ARGV[3])
redis.call('ZADD', KEYS[5], 0, ARGV[3])
redis.call('ZADD', KEYS[6], ARGV[4], ARGV[3])
redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[2]) .. ' ' .. ARGV[2])
return false
