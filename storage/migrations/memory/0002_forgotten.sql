-- What people asked us to forget: ids only, so that the same lines are not learned again.
CREATE TABLE forgotten (
  id           TEXT    NOT NULL,
  what         TEXT    NOT NULL CHECK (what IN ('fact', 'document', 'evidence', 'statement')),
  forgotten_at INTEGER NOT NULL,
  PRIMARY KEY (id, what)
) STRICT, WITHOUT ROWID;
