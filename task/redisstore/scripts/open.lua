-- Brings the keys up to date and returns their format.
--
-- Programs of format 1 put what is told of a change into another inbox before
-- they make the change. That key gets a value that nothing can be put into, so
-- that what they try fails as a whole: they know nothing of formats and cannot be
-- told in another way.
--
-- Format 2 has no list of the tasks that owe their upstream something. All that
-- may are put on it: whoever finds them looks.
--
-- Format 3 has the same keys as format 4. Programs of format 3 cannot read the checksum of
-- a result, and do not record how tools were last approved.
--
-- KEYS: format, the inbox of format 1, the inbox, the tasks that owe something,
-- those that were cancelled and those that have expired.
-- ARGV: the newest format.
local found = redis.call('GET', KEYS[1])
if found == '1' then
  if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('RENAME', KEYS[2], KEYS[3])
  end
  redis.call('SET', KEYS[2], 'a newer program has updated this store: update this one')
end
if found == '1' or found == '2' then
  redis.call('ZUNIONSTORE', KEYS[4], 2, KEYS[5], KEYS[6])
elseif found and found ~= '3' then
  return found
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
