-- Read the batches behind a seq together with the head, from one moment (READ-2).
-- KEYS  1 head (hash)  2 batches (stream)
-- ARGV  1 the seq  2 the seq up to which batches are wanted  3 how many bytes of bodies are enough
-- Gives {fields of the head, sizes, text}: for each batch `id size-of-meta size-of-body`, and metas and bodies joined.
local fields = redis.call('HGETALL', KEYS[1])
local sizes, parts, bytes, last = {}, {}, 0, ARGV[1]
local enough = tonumber(ARGV[3])
local function take(entries)
  for _, entry in ipairs(entries) do
    local meta, body = '', ''
    for i = 1, #entry[2], 2 do
      if entry[2][i] == 'meta' then meta = entry[2][i + 1] elseif entry[2][i] == 'body' then body = entry[2][i + 1] end
    end
    sizes[#sizes + 1] = entry[1] .. ' ' .. #meta .. ' ' .. #body
    parts[#parts + 1] = meta
    parts[#parts + 1] = body
    bytes = bytes + #body
    last = string.match(entry[1], '^%d+')
  end
end
local found, count = 0, 16
repeat -- a few first: a batch can be large
  local page = redis.call('XRANGE', KEYS[2], '(' .. last .. '-0', ARGV[2] .. '-0', 'COUNT', count)
  found = #page
  take(page)
  local full = found == count
  count = bytes < 1000000 and 128 or 4
until not full or bytes >= enough
if bytes < enough and last ~= ARGV[2] then
  take(redis.call('XRANGE', KEYS[2], '(' .. last .. '-0', '+', 'COUNT', 1)) -- one that goes past the end of the page
end
return {fields, table.concat(sizes, '\n'), table.concat(parts)}
