-- What is operational: jobs and their leases, budgets, schedules, counters. Losing this file may cost
-- time, never memory.

PRAGMA application_id = 1835363697;

-- A job's public id is `<id>-<nonce in hex>`: no second index, and a reused row number is a new id.
-- An index that does not hold the row costs nothing, so every index below is partial.
CREATE TABLE jobs (
  id          INTEGER PRIMARY KEY,
  nonce       INTEGER NOT NULL,
  kind        TEXT    NOT NULL,
  project     TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  state       TEXT    NOT NULL CHECK (
    state IN ('available', 'leased', 'completed', 'cancelled', 'discarded', 'dead')),
  priority    INTEGER NOT NULL,
  run_at      INTEGER NOT NULL,
  enqueued_at INTEGER NOT NULL,
  runs        INTEGER NOT NULL DEFAULT 0,
  attempt     INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  crashes     INTEGER NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  waiting_for TEXT    NOT NULL DEFAULT '',
  error       TEXT    NOT NULL DEFAULT '',
  note        TEXT    NOT NULL DEFAULT '',
  owner       TEXT    NOT NULL DEFAULT '',
  token       INTEGER,
  lease_until INTEGER,
  boot        TEXT,
  started_at  INTEGER,
  finished_at INTEGER,
  message     BLOB    NOT NULL,
  lane        TEXT    GENERATED ALWAYS AS
    (printf('%02d', priority) || char(31) || project || char(31) || kind) VIRTUAL,
  CHECK (priority BETWEEN 0 AND 99),
  CHECK ((state = 'leased') = (token IS NOT NULL)),
  CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
  CHECK ((state = 'leased') = (boot IS NOT NULL)),
  CHECK ((state = 'leased') = (owner <> '')),
  CHECK ((state IN ('available', 'leased')) = (finished_at IS NULL))
) STRICT;

-- At most one waits and at most one runs per key; an event during a run finds no waiting row, so it
-- makes exactly one follow-up.
CREATE UNIQUE INDEX jobs_waiting ON jobs (kind, project, subject) WHERE state = 'available';
CREATE UNIQUE INDEX jobs_running ON jobs (kind, project, subject) WHERE state = 'leased';
-- A lane is one priority, project and kind, as one text: SQLite seeks to the next distinct text, but
-- would scan for the next distinct row value. The claim looks at each lane's head only.
CREATE INDEX jobs_lanes ON jobs (lane, run_at) WHERE state = 'available';
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_dead ON jobs (kind, project) WHERE state = 'dead';

-- 'all', 'kind:<kind>' or 'project:<id>'.
CREATE TABLE pauses (
  scope     TEXT PRIMARY KEY,
  paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE last_success (
  kind     TEXT NOT NULL,
  project  TEXT NOT NULL,
  ended_at INTEGER NOT NULL,
  PRIMARY KEY (kind, project)
) STRICT, WITHOUT ROWID;

-- Budgets. A window is one day of the configured zone, keyed by its first instant in UTC ms.
-- scope: 'all', 'project:<id>', 'kind:<kind>', 'model:<name>', 'class:<name>'.
CREATE TABLE budget_windows (
  scope            TEXT    NOT NULL,
  window           INTEGER NOT NULL,
  calls_used       INTEGER NOT NULL DEFAULT 0,
  calls_held       INTEGER NOT NULL DEFAULT 0 CHECK (calls_held >= 0),
  tokens_used      INTEGER NOT NULL DEFAULT 0,
  tokens_held      INTEGER NOT NULL DEFAULT 0 CHECK (tokens_held >= 0),
  input_tokens     INTEGER NOT NULL DEFAULT 0,
  cached_tokens    INTEGER NOT NULL DEFAULT 0,
  output_tokens    INTEGER NOT NULL DEFAULT 0,
  reasoning_tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, window)
) STRICT, WITHOUT ROWID;

-- held -> settled (the provider said what it used), estimated (it did not), released (never sent),
-- unknown (its process died: it stays charged for that day).
CREATE TABLE reservations (
  id          INTEGER PRIMARY KEY,
  nonce       INTEGER NOT NULL,
  window      INTEGER NOT NULL,
  state       TEXT    NOT NULL CHECK (
    state IN ('held', 'settled', 'estimated', 'released', 'unknown')),
  calls       INTEGER NOT NULL CHECK (calls >= 0),
  tokens      INTEGER NOT NULL CHECK (tokens >= 0),
  scopes      TEXT    NOT NULL,
  kind        TEXT    NOT NULL,
  project     TEXT    NOT NULL,
  model       TEXT    NOT NULL,
  job_id      TEXT    NOT NULL,
  reserved_at INTEGER NOT NULL,
  settled_at  INTEGER,
  used_tokens INTEGER
) STRICT;
CREATE INDEX reservations_by_time ON reservations (reserved_at);

CREATE TABLE schedules (
  name        TEXT PRIMARY KEY,
  expression  TEXT NOT NULL,
  zone        TEXT NOT NULL,
  next_run_at INTEGER NOT NULL,
  last_run_at INTEGER,
  missed      INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- One run per slot, however many consumers: inserted in the transaction that enqueues its jobs.
CREATE TABLE fired (
  name     TEXT NOT NULL,
  slot     TEXT NOT NULL,
  fired_at INTEGER NOT NULL,
  PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;
CREATE INDEX fired_by_time ON fired (fired_at);

-- Counters only grow; a watermark is their value at the last sync of one adapter.
CREATE TABLE activity (
  project TEXT PRIMARY KEY,
  turns   INTEGER NOT NULL DEFAULT 0,
  tokens  INTEGER NOT NULL DEFAULT 0,
  inserts INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE watermarks (
  project TEXT NOT NULL,
  adapter TEXT NOT NULL,
  turns   INTEGER NOT NULL,
  tokens  INTEGER NOT NULL,
  inserts INTEGER NOT NULL,
  ran_at  INTEGER NOT NULL,
  PRIMARY KEY (project, adapter)
) STRICT, WITHOUT ROWID;

-- Spool files already taken in: a crash between the commit and the unlink must not count them twice.
CREATE TABLE spooled (
  name     TEXT PRIMARY KEY,
  taken_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Huey's own keys (revocations, locks, counters of foreign tasks).
CREATE TABLE huey_values (
  key    TEXT PRIMARY KEY,
  value  BLOB NOT NULL,
  set_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
