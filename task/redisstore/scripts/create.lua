-- Adds a task within limits. Returns nothing if it did, 1 if there is a task
-- with this ID, and otherwise what is pending.
--
-- KEYS: task, changes, its four places, all pending by due time, the pending
-- tasks of the same call, the inbox of the journal, the pending tasks of the
-- same room and of all rooms, the tasks that owe something, the pending tasks of
-- the same owner in each state.
-- ARGV: channel, message, member, due, limit per owner, limit of all, unique,
-- limit per room, limit of all rooms, whether it counts in a room, whether it
-- owes something, how many notes, the notes, then the fields of the task.
if redis.call('EXISTS', KEYS[1]) == 1 then
  return 1
end

local perOwner, most, unique = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == 'true'
local total, owner, same = redis.call('ZCARD', KEYS[7]), 0, ''
for i = 13, #KEYS do
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
if same ~= '' or (perOwner > 0 and owner >= perOwner) or (most > 0 and total >= most)
  or (perRoom > 0 and room >= perRoom) or (allRooms > 0 and rooms >= allRooms) then
  return {tostring(owner), tostring(total), same, tostring(room), tostring(rooms)}
end

local notes = tonumber(ARGV[12])
if notes > 0 then
  redis.call('RPUSH', KEYS[9], unpack(ARGV, 13, 12 + notes))
end
redis.call('HSET', KEYS[1], unpack(ARGV, 13 + notes))
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
