-- Read the newest batches, newest first, and then stubs, together with the head, from one moment (APPEND-1).
-- KEYS  1 head (hash)  2 batches (stream)  3 stubs (stream)
-- ARGV  1 the id below which to begin, or '+'  2 how many  3 how many bytes of bodies are enough
-- Gives {fields of the head, sizes, text}: for each batch `id size-of-meta size-of-body`, for each stub
-- `id size-of-meta size-of-ids stub`, and metas, bodies and ids joined.
local fields = redis.call('HGETALL', KEYS[1])
local sizes, parts, bytes = {}, {}, 0
local want, enough, from = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[1]
local function take(key, name, mark)
  local count, found = 16, 0
  repeat
    if count > want - #sizes then count = want - #sizes end
    if count < 1 then return end
    local page = redis.call('XREVRANGE', key, from, '-', 'COUNT', count)
    found = #page
    for _, entry in ipairs(page) do
      local meta, body = '', ''
      for i = 1, #entry[2], 2 do
        if entry[2][i] == 'meta' then meta = entry[2][i + 1] elseif entry[2][i] == name then body = entry[2][i + 1] end
      end
      sizes[#sizes + 1] = entry[1] .. ' ' .. #meta .. ' ' .. #body .. mark
      parts[#parts + 1] = meta
      parts[#parts + 1] = body
      bytes = bytes + #body
      from = '(' .. entry[1]
    end
  until found < count or bytes >= enough
end
take(KEYS[2], 'body', '')
if bytes < enough then
  take(KEYS[3], 'ids', ' stub')
end
return {fields, table.concat(sizes, '\n'), table.concat(parts)}
