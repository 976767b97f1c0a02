"""`redis://`, `rediss://`, `redis+sentinel://`, `redis+cluster://`: native journals, state and atomic storage.

The keys, where `N` is the encoded namespace and everything between braces is the hash tag. Core's encoder makes the
names; it knows no braces, so that no id can move a tag (ID-4). All keys of a thread are in one slot, and so are all
keys of a session. This layout is fixed: to change it is a migration.

| key | type | what it holds |
| --- | --- | --- |
| `sb:{t:N/user/agent/session/thread}:head` | hash | the head (HEAD-1), a tombstone too; `seal` is a digest over all |
| `…:batches` | stream | one entry a batch: id `<last_seq>-0`, `meta` (a JSON object), `body` (one line of JSON) |
| `…:stubs` | stream | the event ids of trimmed batches among the newest 64: `meta`, `ids` (a sealed record) |
| `…:cursors` | hash | one sealed record an exporter, by its encoded name (CURSOR-1) |
| `sb:{s:N/user/session}:d/key` | hash | a document: ids, version, state, `value`, `seal`; a tombstone keeps the
version | | `…:l/key` | hash | a list, without its items |
| `…:l/key/items` | list | its items |
| `…:live`, `…:live:count` | sorted set, number | the live slots of the session, `d/key` and `l/key` |
| `sb:{i:N/user}:threads`, `…:count` | sorted set, number | the threads of a user, deleted ones too |
| `sb:{i:N/user}:sessions`, `…:count` | sorted set, number | the sessions of a user, empty ones too |
| `sb:{a:N/scope}:head` | hash | `token` and `data` of a scope of the atomic storage |
| `…:blobs` | hash | its blobs, by name |
| `sb:{i:N/}:scopes`, `…:count` | sorted set, number | the scopes that have a head |

A member of a sorted set is a name, a space and eight hex digits of the name's digest; all have the score 0, so that
they are in the order of their bytes. The number beside a set is how many members it has: a lost or changed member is
an error of a listing, never a gap in it.

An index is in another slot than what it lists. Its entry is therefore written before the first head, slot or scope;
where that is then not written, the entry dangles and a listing skips it. Entries of threads go with `purge`, those of
scopes with `delete_head`, those of sessions never, because tombstones stay too.

Every write is one Lua script: it compares what the caller judged with what is stored and writes in the same step. A
reply that is an array says that nothing was written, and why; every other reply says that something was.

Fencing outlives a failover only as far as the data does: Redis replicates behind its acknowledgements. A writer that
meets a master without its last batches is told `JournalRegressed` or `WriterFenced`, never success (APPEND). The
options `wait_replicas` and `waitaof` make a call wait for more than the master; where that is not confirmed in time,
the outcome is unknown.
"""
