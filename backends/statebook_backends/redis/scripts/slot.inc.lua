-- Shared by the scripts of slots. A slot is a hash:
--   format, key (ids as JSON), version, state ('live' or 'deleted'), length and bytes (of all items; of a document 0 and
--   the size of its value), digest (SHA-1 of the value, or running over the items), value (of a live document), seal.
-- The seal is a SHA-1 over the key's name and all fields but value and seal: the one digest that Redis offers to scripts.
-- KEYS  1 slot (hash)  2 items (list)  3 live (sorted set)  4 its number
-- Every script gives what it did, or an array: {'conflict', state, version, length}, {'index'}: the session has no live
-- slot, so it must be put into its user's index first, {'format', found}, {'damaged', expected, found}, {'absent'}.
local NAMES = {'format', 'key', 'version', 'state', 'length', 'bytes', 'digest', 'seal'}

local function seal(fields)
  return redis.sha1hex(KEYS[1] .. '\n' .. table.concat(fields, '\n', 1, 7))
end

-- The slot's fields, or what is wrong. `ids` is the key that it must have, `member` its name in the index.
local function load(ids, member)
  local fields = redis.call('HMGET', KEYS[1], unpack(NAMES))
  local live = redis.call('ZSCORE', KEYS[3], member)
  if redis.call('ZCARD', KEYS[3]) ~= tonumber(redis.call('GET', KEYS[4]) or '0') then
    return nil, {'damaged', 'as many live slots as were counted', 'another number'}
  end
  if redis.call('EXISTS', KEYS[1]) == 0 then
    if live or redis.call('EXISTS', KEYS[2]) == 1 then
      return nil, {'damaged', 'the slot that was there', 'none'}
    end
    return {'2', ids, '0', 'deleted', '0', '0', '', ''}
  end
  if fields[1] and fields[1] ~= '2' then
    return nil, {'format', fields[1]}
  end
  for i = 1, 8 do
    if not fields[i] then
      return nil, {'damaged', 'the field ' .. NAMES[i], 'none'}
    end
  end
  local found = seal(fields)
  if found ~= fields[8] then
    return nil, {'damaged', fields[8], found}
  end
  if fields[2] ~= ids then
    return nil, {'damaged', ids, fields[2]}
  end
  if (fields[4] == 'live') ~= (live ~= false) then
    return nil, {'damaged', 'a live slot in the index, and no other', 'otherwise'}
  end
  return fields
end

-- What stands against a write: the slot is not as expected.
local function against(fields, mode, version)
  local live = fields[4] == 'live'
  if mode == 'any' or (mode == 'absent' and not live) or (mode == 'version' and live and fields[3] == version) then
    return nil
  end
  return {'conflict', fields[4], fields[3], fields[5]}
end

-- Write the slot's fields with the next version, and its name into the index. Gives the version.
local function store(fields, member, length, bytes, digest)
  local before = fields[4]
  fields[3] = string.format('%.0f', tonumber(fields[3]) + 1)
  fields[4], fields[5], fields[6], fields[7] = 'live', length, bytes, digest
  local words = {}
  for i = 1, 7 do
    words[2 * i - 1], words[2 * i] = NAMES[i], fields[i]
  end
  redis.call('HSET', KEYS[1], 'seal', seal(fields), unpack(words))
  if before ~= 'live' then
    redis.call('ZADD', KEYS[3], 0, member)
    redis.call('INCR', KEYS[4])
  end
  return fields[3]
end
