-- The tables of exported journals, for reports. Every statement may be run again.
--
-- Operators who let no application make tables run this file and open the sink with create=false. For another
-- table_prefix than sb_ replace sb_ everywhere. These tables stand alone: the store's own need not be there.
--
-- Ids in keys are VARBINARY: they compare byte by byte, so that case, accents and trailing spaces are kept apart. They
-- hold UTF-8; CONVERT(event_id USING utf8mb4) shows them as text where a client does not.

-- One row an event. journal_id is the incarnation of the journal: event ids are unique, and seqs grow, within it.
CREATE TABLE IF NOT EXISTS sb_event (
    journal_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq BIGINT NOT NULL,
    event_id VARBINARY(512) NOT NULL,
    type VARCHAR(512) NOT NULL,
    user_id VARCHAR(512) NULL,                                                  -- NULL: the absent user
    agent_id VARCHAR(512) NOT NULL,
    session_id VARCHAR(512) NOT NULL,
    thread_id VARCHAR(512) NOT NULL,
    run_id VARCHAR(512) NULL,
    turn_id VARCHAR(512) NULL,
    occurred_at BIGINT NOT NULL,                                                -- Unix time in ms, the writer's clock
    required TINYINT NOT NULL,                                                  -- 1 or 0
    payload LONGTEXT NOT NULL,                                                  -- JSON, as it was written
    PRIMARY KEY (journal_id, event_id),
    UNIQUE KEY by_seq (journal_id, seq),
    KEY by_type (type, occurred_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row an event that an exporter left out on purpose, and why.
CREATE TABLE IF NOT EXISTS sb_skipped (
    journal_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq BIGINT NOT NULL,
    exporter VARBINARY(512) NOT NULL,
    event_id VARBINARY(512) NOT NULL,
    type VARCHAR(512) NOT NULL,
    user_id VARCHAR(512) NULL,
    agent_id VARCHAR(512) NOT NULL,
    session_id VARCHAR(512) NOT NULL,
    thread_id VARCHAR(512) NOT NULL,
    reason LONGTEXT NOT NULL,
    skipped_at BIGINT NOT NULL,                                                 -- Unix time in ms
    PRIMARY KEY (journal_id, seq, exporter)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
