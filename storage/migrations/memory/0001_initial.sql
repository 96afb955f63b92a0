-- The authority's base tables: the same in the compact image and in the indexed file.
-- FTS5, vec0 and the JSONL journal are derived and belong to the indexed container alone.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- History. `payload` is canonical JSON in the compact container and NULL in the indexed one,
-- where the journal file holds it. `more` counts the events of the same batch that follow.
-- `event_id` is derived from writer and writer_seq: one index is enough for both.
CREATE TABLE events (
  seq           INTEGER PRIMARY KEY,
  event_id      TEXT    NOT NULL,
  writer        TEXT    NOT NULL,
  writer_seq    INTEGER NOT NULL CHECK (writer_seq >= 1),
  recorded_at   INTEGER NOT NULL,
  type          TEXT    NOT NULL,
  previous_hash TEXT    NOT NULL,
  payload_hash  TEXT    NOT NULL,
  hash          TEXT    NOT NULL,
  more          INTEGER NOT NULL CHECK (more >= 0),
  job_id        TEXT,
  job_token     INTEGER,
  payload       BLOB,
  UNIQUE (writer, writer_seq)
) STRICT;

-- The anchored head of each writer's chain: a lost tail or a lost stream shows here.
CREATE TABLE heads (
  writer     TEXT PRIMARY KEY,
  writer_seq INTEGER NOT NULL,
  hash       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- Effects already applied: a job that runs again finds its id and only acknowledges.
CREATE TABLE applied_jobs (
  job_id     TEXT PRIMARY KEY,
  token      INTEGER NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE documents (
  document_key TEXT PRIMARY KEY,
  namespace    TEXT NOT NULL,
  external_id  TEXT NOT NULL,
  source       TEXT NOT NULL,
  kind         TEXT NOT NULL,
  title        TEXT NOT NULL,
  text         TEXT NOT NULL,
  uri          TEXT NOT NULL,
  version      TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  observed_at  INTEGER NOT NULL,
  valid_from   INTEGER,
  valid_to     INTEGER,
  trust        TEXT NOT NULL CHECK (trust IN ('host', 'user', 'agent', 'imported')),
  adapter      TEXT NOT NULL,
  revision     TEXT NOT NULL,
  metadata     TEXT NOT NULL,
  recorded_at  INTEGER NOT NULL,
  deleted_at   INTEGER,
  CHECK (valid_from IS NULL OR valid_to IS NULL OR valid_from <= valid_to)
) STRICT;

-- Where each chunk lies in its document's text, in UTF-8 bytes: the words are stored once.
-- A number is never used twice: caches and vectors are keyed on it.
CREATE TABLE slices (
  rowid        INTEGER PRIMARY KEY AUTOINCREMENT,
  chunk_id     TEXT    NOT NULL UNIQUE,
  document_key TEXT    NOT NULL REFERENCES documents (document_key),
  ordinal      INTEGER NOT NULL,
  start        INTEGER NOT NULL CHECK (start >= 0),
  bytes        INTEGER NOT NULL CHECK (bytes > 0),
  UNIQUE (document_key, ordinal)
) STRICT;

-- A left join: SQLite leaves documents out where neither title nor text is asked for.
CREATE VIEW chunks (rowid, chunk_id, document_key, ordinal, title, text) AS
SELECT s.rowid, s.chunk_id, s.document_key, s.ordinal, d.title,
  CAST(substr(CAST(d.text AS BLOB), s.start + 1, s.bytes) AS TEXT)
FROM slices s LEFT JOIN documents d ON d.document_key = s.document_key;

CREATE TABLE facts (
  fact_id     TEXT PRIMARY KEY,
  kind        TEXT NOT NULL,
  statement   TEXT NOT NULL,
  standing    TEXT NOT NULL CHECK (
    standing IN ('candidate', 'supported', 'needs_review', 'contradicted', 'superseded')),
  confidence  REAL    NOT NULL CHECK (confidence BETWEEN 0 AND 1),
  valid_at    INTEGER NOT NULL,
  invalid_at  INTEGER,
  recorded_at INTEGER NOT NULL,
  expired_at  INTEGER,
  subject     TEXT NOT NULL,
  predicate   TEXT NOT NULL,
  object      TEXT NOT NULL,
  tags        TEXT NOT NULL,
  analyst     TEXT NOT NULL,
  CHECK (invalid_at IS NULL OR valid_at <= invalid_at),
  CHECK (expired_at IS NULL OR standing IN ('contradicted', 'superseded'))
) STRICT;

CREATE TABLE evidence (
  evidence_id  TEXT PRIMARY KEY,
  origin       TEXT NOT NULL,
  provenance   TEXT NOT NULL,
  excerpt      TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  observed_at  INTEGER NOT NULL,
  adapter      TEXT NOT NULL,
  locator      TEXT NOT NULL,
  line         INTEGER NOT NULL,
  session_id   TEXT NOT NULL,
  tool_call_id TEXT NOT NULL,
  CHECK (provenance <> 'native_observation' OR origin = 'host_observation')
) STRICT;

CREATE TABLE fact_evidence (
  fact_id     TEXT NOT NULL REFERENCES facts (fact_id),
  evidence_id TEXT NOT NULL REFERENCES evidence (evidence_id),
  PRIMARY KEY (fact_id, evidence_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE entities (
  entity_id TEXT PRIMARY KEY,
  type      TEXT NOT NULL,
  name      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE fact_entities (
  fact_id   TEXT NOT NULL REFERENCES facts (fact_id),
  entity_id TEXT NOT NULL REFERENCES entities (entity_id),
  PRIMARY KEY (fact_id, entity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_entities_by_entity ON fact_entities (entity_id);

CREATE TABLE fact_links (
  from_id     TEXT NOT NULL,
  to_id       TEXT NOT NULL,
  link        TEXT NOT NULL CHECK (link IN ('supersedes', 'resolves')),
  recorded_at INTEGER NOT NULL,
  PRIMARY KEY (from_id, to_id, link)
) STRICT, WITHOUT ROWID;

CREATE TABLE usefulness (
  fact_id TEXT PRIMARY KEY,
  used    INTEGER NOT NULL DEFAULT 0,
  helpful INTEGER NOT NULL DEFAULT 0,
  wrong   INTEGER NOT NULL DEFAULT 0,
  stale   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Declared statements that wait for translation; never recalled as they are.
CREATE TABLE deferred_statements (
  statement_id TEXT PRIMARY KEY,
  kind         TEXT NOT NULL,
  original     TEXT NOT NULL,
  lang         TEXT NOT NULL,
  evidence_id  TEXT NOT NULL REFERENCES evidence (evidence_id),
  supersedes   TEXT NOT NULL,
  deferred_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far each source has been read: everything before `offset` is in here.
CREATE TABLE source_cursors (
  adapter      TEXT    NOT NULL,
  locator      TEXT    NOT NULL,
  offset       INTEGER NOT NULL CHECK (offset >= 0),
  line         INTEGER NOT NULL,
  observations INTEGER NOT NULL,
  skipped      INTEGER NOT NULL,
  state        TEXT    NOT NULL,
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (adapter, locator)
) STRICT, WITHOUT ROWID;

CREATE TABLE collections (
  name        TEXT PRIMARY KEY,
  model       TEXT    NOT NULL,
  dims        INTEGER NOT NULL CHECK (dims BETWEEN 8 AND 8192),
  fingerprint TEXT    NOT NULL,
  scale       REAL    NOT NULL CHECK (scale > 0),
  created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- int8 components, dims bytes a row, compared by sqlite-vec's distance functions. A vec0 table over
-- them would hold each vector once more and is 12 % faster at 100,000. No foreign keys: the compact image keeps this table in a second database, which they cannot reach
-- (the reducer deletes a chunk's vectors itself, and verify looks for orphans).
CREATE TABLE vectors (
  collection TEXT    NOT NULL,
  chunk      INTEGER NOT NULL,
  embedding  BLOB    NOT NULL,
  PRIMARY KEY (collection, chunk)
) STRICT, WITHOUT ROWID;
