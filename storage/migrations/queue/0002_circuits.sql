-- One row per model provider that failed lately. Open (opened_at is set) means that nothing is sent
-- but one probe at a time, once probe_at has come.
CREATE TABLE circuits (
  provider      TEXT PRIMARY KEY,
  failures      INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0),
  reason        TEXT    NOT NULL CHECK (reason IN ('auth', 'quota', 'errors')),
  openings      INTEGER NOT NULL DEFAULT 0,
  failed_at     INTEGER NOT NULL,
  opened_at     INTEGER,
  probe_at      INTEGER,
  probing_until INTEGER,
  CHECK ((opened_at IS NULL) = (probe_at IS NULL)),
  CHECK (probing_until IS NULL OR opened_at IS NOT NULL)
) STRICT, WITHOUT ROWID;
