-- Migrates the keys and returns their format.
--
-- Programs of format 1 add the notes of a change to another inbox before they make the change.
-- They do not check the format. So that inbox gets a value of another type, to which notes
-- cannot be added: their scripts then fail before the change.
--
-- Format 2 has no list of the tasks that owe a cancellation. All tasks that may owe one are
-- added to it, and reads remove the others.
--
-- Format 3 has the same keys as format 4. Programs of format 3 cannot read the checksum of a
-- result, and do not record how tools were last approved.
--
-- Format 4 does not count bytes, and format 5 counts them for owners instead of accounts.
-- Their tasks count for their account from their next change.
--
-- KEYS: format, the inbox of format 1, the inbox, the tasks that owe a cancellation, the
-- cancelled tasks, the expired tasks. ARGV: the newest format.
local found = redis.call('GET', KEYS[1])
if found == '1' then
  if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('RENAME', KEYS[2], KEYS[3])
  end
  redis.call('SET', KEYS[2], 'a newer program has updated this store: update this one')
end
if found == '1' or found == '2' then
  redis.call('ZUNIONSTORE', KEYS[4], 2, KEYS[5], KEYS[6])
elseif found and found ~= '3' and found ~= '4' and found ~= '5' then
  return found
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
