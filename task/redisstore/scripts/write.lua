-- Stores a chunk if the task exists and the owner may write it. Returns the owner, or nil if
-- the task does not exist. A longer chunk is deleted first, so that a server whose memory is
-- full accepts a shorter one.
--
-- KEYS: task, blob. ARGV: whether only one owner may write, that owner, number of the chunk,
-- data.
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and (ARGV[1] == 'false' or (owner == ARGV[2] and owner ~= '')) then
  if redis.call('HSTRLEN', KEYS[2], ARGV[3]) > #ARGV[4] then
    redis.call('HDEL', KEYS[2], ARGV[3])
  end
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
return owner
