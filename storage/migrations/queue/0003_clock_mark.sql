-- How wall and boot time stood to each other when a worker last looked: a clock that was set back
-- while no worker ran must not keep a job waiting for the time that was wrong.
CREATE TABLE clock_mark (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  boot    TEXT    NOT NULL,
  wall    INTEGER NOT NULL,
  boot_ms INTEGER NOT NULL
) STRICT;
