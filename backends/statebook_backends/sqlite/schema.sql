-- The tables of a statebook database, format 2.
--
-- PRAGMA application_id = 0x53544244 ("STBD"), PRAGMA user_version = 2: the format (FORMAT-1).
-- A namespace is a column of its own, first in every key: namespaces never meet, and one is deleted by equality.
-- `name` columns hold the names made by core's encoder, which listings follow; the ids beside them are as given.
-- `seal` columns hold the SHA-256 of the rest of the row, so that a row that was changed by hand is recognised.
-- Tables are STRICT: a column holds values of its type and no others.
-- All text compares byte by byte (BINARY), so ids keep case, accents and trailing spaces apart.

-- One row a thread that has or had a journal: its number, so that batches whose head was lost are recognised.
CREATE TABLE thread (
    jid INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,             -- ThreadKey.name
    UNIQUE (namespace, name)
) STRICT;

-- One row a thread: the head of its journal, or the tombstone of one. The only authority (HEAD-1).
CREATE TABLE journal (
    jid INTEGER PRIMARY KEY,        -- what batches and cursors refer to
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,             -- ThreadKey.name
    user_id TEXT,                   -- NULL: the absent user
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    format INTEGER NOT NULL,
    journal_id TEXT NOT NULL,       -- random for each incarnation
    state TEXT NOT NULL,            -- open, deleted
    epoch INTEGER NOT NULL,         -- never decreases
    claim_nonce TEXT,               -- the fence together with the epoch
    writer_id TEXT,                 -- who holds the claim
    first_seq INTEGER NOT NULL,     -- the first seq that is still there
    generation INTEGER NOT NULL,    -- +1 a write
    nonce TEXT NOT NULL,            -- fresh a write
    last_seq INTEGER NOT NULL,
    checkpoint_seq INTEGER,
    chain TEXT NOT NULL,            -- the running chain digest
    seal TEXT NOT NULL,
    UNIQUE (namespace, name)
) STRICT;

-- One row a batch: the batch itself and its receipt. Where it ends before journal.first_seq its events are trimmed
-- away, and only the receipt is left, with the event ids of the newest ones.
-- Rows lie in the order of commits, so that a group of many threads' batches fills pages one after the other. Batch ids
-- come before the journal in their index for the same reason: ids that grow with time share its last page.
CREATE TABLE batch (
    jid INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    batch_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    digest TEXT NOT NULL,           -- SHA-256 of the body
    chain TEXT NOT NULL,            -- the chain digest behind this batch
    body BLOB NOT NULL,             -- one line of JSON: batch_id and events
    UNIQUE (jid, last_seq),
    UNIQUE (batch_id, jid)
) STRICT;

-- One row an export cursor (CURSOR-1). Outlives the deletion of its journal, not the purge.
CREATE TABLE cursor (
    jid INTEGER NOT NULL,
    exporter TEXT NOT NULL,
    journal_id TEXT NOT NULL,       -- the incarnation that it exports
    acked_seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    nonce TEXT NOT NULL,
    version INTEGER NOT NULL,
    seal TEXT NOT NULL,
    PRIMARY KEY (jid, exporter)
) STRICT;

-- One row a slot of agent state, live or the tombstone that keeps its version (STATE-2).
CREATE TABLE slot (
    sid INTEGER PRIMARY KEY,        -- a digest of namespace, kind and name
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,             -- document, list
    name TEXT NOT NULL,             -- StateKey.name
    session TEXT NOT NULL,          -- SessionKey.name
    user_id TEXT,                   -- NULL: the absent user
    session_id TEXT NOT NULL,
    key TEXT NOT NULL,
    format INTEGER NOT NULL,
    version INTEGER NOT NULL,
    live INTEGER NOT NULL,          -- 1, or 0 for a tombstone
    length INTEGER NOT NULL,        -- items of a list; 0 for documents
    bytes INTEGER NOT NULL,         -- bytes of the value or of all items
    digest TEXT NOT NULL,           -- SHA-256 of a document, running digest of a list's chunks
    seal TEXT NOT NULL,
    value BLOB,                     -- the document; NULL for lists and tombstones
    UNIQUE (namespace, kind, name)
) STRICT;
CREATE INDEX slot_live ON slot (namespace, session, kind, name) WHERE live = 1;

-- The items of a list: one row an append, so that an append costs what is appended (STATE-7).
CREATE TABLE chunk (
    sid INTEGER NOT NULL,
    first INTEGER NOT NULL,         -- the index of the first item
    sizes TEXT NOT NULL,            -- JSON: the bytes of each item
    body BLOB NOT NULL,             -- the items, one a line
    PRIMARY KEY (sid, first)
) STRICT;

-- The heads of the atomic storage: one row a scope (ATOM).
CREATE TABLE atomic_head (
    namespace TEXT NOT NULL,
    scope TEXT NOT NULL,
    token TEXT NOT NULL,            -- fresh a write
    data BLOB NOT NULL,
    PRIMARY KEY (namespace, scope)
) STRICT;

-- The immutable blobs of the atomic storage.
CREATE TABLE atomic_blob (
    namespace TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (namespace, scope, name)
) STRICT;

-- For SQL users: one row an event that is still there. Payloads as SQLite renders JSON; the bytes are in batch.body.
CREATE VIEW events AS
SELECT
    j.namespace, j.user_id, j.agent_id, j.session_id, j.thread_id, j.journal_id,
    b.first_seq + e.key AS seq,
    b.batch_id,
    b.epoch,
    json_extract(e.value, '$.event_id') AS event_id,
    json_extract(e.value, '$.type') AS type,
    json_extract(e.value, '$.occurred_at') AS occurred_at,
    json_extract(e.value, '$.run_id') AS run_id,
    json_extract(e.value, '$.turn_id') AS turn_id,
    coalesce(json_extract(e.value, '$.required'), 0) AS required,
    coalesce(json_extract(e.value, '$.schema_version'), 2) AS schema_version,
    json_extract(e.value, '$.payload') AS payload
FROM journal AS j
JOIN batch AS b ON b.jid = j.jid AND b.last_seq >= j.first_seq
JOIN json_each(CAST(b.body AS TEXT), '$.events') AS e
WHERE j.state = 'open' AND b.first_seq + e.key >= j.first_seq;
