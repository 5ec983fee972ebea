-- Keeps a chunk if the task is there and its owner is admitted. Returns the
-- owner, or nothing if there is no such task. A longer chunk is deleted first:
-- then a server whose memory is full lets a shorter one take its place.
--
-- KEYS: task, blob.
-- ARGV: whether one owner is admitted, which, number of the chunk, data.
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and (ARGV[1] == 'false' or (owner == ARGV[2] and owner ~= '')) then
  if redis.call('HSTRLEN', KEYS[2], ARGV[3]) > #ARGV[4] then
    redis.call('HDEL', KEYS[2], ARGV[3])
  end
  redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
end
return owner
