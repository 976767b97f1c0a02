-- The tables of an exported journal, for reports.
--
-- event: one row an event. journal_id is the incarnation of the journal; event ids are unique, and seqs grow, within it.
-- payload is JSON text. occurred_at is Unix time in milliseconds, by the writer's clock.
-- skipped: one row an event that an exporter left out on purpose, and why.
CREATE TABLE IF NOT EXISTS event (
    journal_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    user_id TEXT,
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    run_id TEXT,
    turn_id TEXT,
    occurred_at INTEGER NOT NULL,
    required INTEGER NOT NULL,
    payload TEXT NOT NULL,
    PRIMARY KEY (journal_id, event_id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS event_seq ON event (journal_id, seq);

CREATE INDEX IF NOT EXISTS event_type ON event (type, occurred_at);

CREATE TABLE IF NOT EXISTS skipped (
    journal_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    exporter TEXT NOT NULL,
    event_id TEXT NOT NULL,
    type TEXT NOT NULL,
    user_id TEXT,
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    skipped_at INTEGER NOT NULL,
    PRIMARY KEY (journal_id, seq, exporter)
) WITHOUT ROWID;
