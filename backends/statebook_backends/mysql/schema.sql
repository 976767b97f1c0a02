-- The tables of statebook on MySQL and MariaDB, schema 1, format 2. Every statement may be run again.
--
-- Operators who let no application make tables run this file and open stores with create=false. For another
-- table_prefix than sb_ replace sb_ everywhere.
--
-- A namespace is a column of its own, first in every key: namespaces never meet, and one is deleted by equality.
-- `name` columns hold the names made by core's encoder, which listings follow; the ids beside them are as given.
-- Keys are VARBINARY: they compare byte by byte, so case, accents and trailing spaces are kept apart whatever the
-- collation of server and database is.
-- `seal` columns hold the SHA-256 of the rest of the row, so that a row that was changed by hand is recognised.

-- One row a thread that has or had a journal: its number, so that batches whose head was lost are recognised.
CREATE TABLE IF NOT EXISTS sb_thread (
    jid BIGINT NOT NULL AUTO_INCREMENT,
    namespace VARBINARY(512) NOT NULL,
    name VARBINARY(640) NOT NULL,                                               -- ThreadKey.name
    PRIMARY KEY (jid),
    UNIQUE KEY by_name (namespace, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a thread: the head of its journal, or the tombstone of one. The only authority (HEAD-1).
CREATE TABLE IF NOT EXISTS sb_journal (
    jid BIGINT NOT NULL,                                                        -- what batches and cursors refer to
    namespace VARBINARY(512) NOT NULL,
    name VARBINARY(640) NOT NULL,                                               -- ThreadKey.name
    user_id VARCHAR(512) NULL,                                                  -- NULL: the absent user
    agent_id VARCHAR(512) NOT NULL,
    session_id VARCHAR(512) NOT NULL,
    thread_id VARCHAR(512) NOT NULL,
    format INT NOT NULL,
    journal_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,      -- random for each incarnation
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,           -- open, deleted
    epoch BIGINT NOT NULL,                                                      -- never decreases
    claim_nonce VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,         -- the fence together with the epoch
    writer_id VARCHAR(512) NULL,                                                -- who holds the claim
    first_seq BIGINT NOT NULL,                                                  -- the first seq that is still there
    generation BIGINT NOT NULL,                                                 -- +1 a write
    nonce VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,           -- fresh a write
    last_seq BIGINT NOT NULL,
    checkpoint_seq BIGINT NULL,
    chain VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,           -- the running chain digest
    seal VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (jid),
    UNIQUE KEY by_name (namespace, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a batch: the batch itself and its receipt. Where it ends before journal.first_seq its events are trimmed
-- away, and only the receipt is left, with the event ids of the newest ones.
CREATE TABLE IF NOT EXISTS sb_batch (
    jid BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq BIGINT NOT NULL,
    batch_id VARBINARY(512) NOT NULL,
    epoch BIGINT NOT NULL,
    digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,          -- SHA-256 of the body
    chain VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,           -- the chain digest behind this batch
    body LONGBLOB NOT NULL,                                                     -- one line of JSON: batch_id and events
    PRIMARY KEY (jid, last_seq),
    UNIQUE KEY by_batch (jid, batch_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row an export cursor (CURSOR-1). Outlives the deletion of its journal, not the purge.
CREATE TABLE IF NOT EXISTS sb_cursor (
    jid BIGINT NOT NULL,
    exporter VARBINARY(512) NOT NULL,
    journal_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,      -- the incarnation that it exports
    acked_seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    nonce VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    version BIGINT NOT NULL,
    seal VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (jid, exporter)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a slot of agent state, live or the tombstone that keeps its version (STATE-2).
CREATE TABLE IF NOT EXISTS sb_slot (
    sid BIGINT NOT NULL,                                                        -- a digest of namespace, kind and name
    namespace VARBINARY(512) NOT NULL,
    kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,            -- document, list
    name VARBINARY(640) NOT NULL,                                               -- StateKey.name
    session VARBINARY(320) NOT NULL,                                            -- SessionKey.name
    user_id VARCHAR(512) NULL,                                                  -- NULL: the absent user
    session_id VARCHAR(512) NOT NULL,
    slot_key VARCHAR(512) NOT NULL,
    format INT NOT NULL,
    version BIGINT NOT NULL,
    live TINYINT NOT NULL,                                                      -- 1, or 0 for a tombstone
    items BIGINT NOT NULL,                                                      -- items of a list, 0 for documents
    size BIGINT NOT NULL,                                                       -- bytes of the value or of all items
    digest VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,          -- of a document, or running over chunks
    seal VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value LONGBLOB NULL,                                                        -- the document, else NULL
    PRIMARY KEY (sid),
    UNIQUE KEY by_name (namespace, kind, name),
    KEY by_session (namespace, live, session, kind, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The items of a list: one row an append or more, so that an append costs what is appended (STATE-7).
CREATE TABLE IF NOT EXISTS sb_chunk (
    sid BIGINT NOT NULL,
    first_item BIGINT NOT NULL,                                                 -- the index of the first item
    sizes LONGTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL,              -- JSON: the bytes of each item
    body LONGBLOB NOT NULL,                                                     -- the items, one a line
    PRIMARY KEY (sid, first_item)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The heads of the atomic storage: one row a scope (ATOM).
CREATE TABLE IF NOT EXISTS sb_atomic_head (
    namespace VARBINARY(512) NOT NULL,
    scope VARBINARY(640) NOT NULL,
    token VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,           -- fresh a write
    data LONGBLOB NOT NULL,
    PRIMARY KEY (namespace, scope)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The immutable blobs of the atomic storage.
CREATE TABLE IF NOT EXISTS sb_atomic_blob (
    namespace VARBINARY(512) NOT NULL,
    scope VARBINARY(640) NOT NULL,
    name VARBINARY(64) NOT NULL,
    data LONGBLOB NOT NULL,
    PRIMARY KEY (namespace, scope, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What these tables are. Written last: where it is whole, all tables are there.
CREATE TABLE IF NOT EXISTS sb_meta (
    name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    value VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
INSERT IGNORE INTO sb_meta (name, value) VALUES ('format', '2'), ('schema', '1');
