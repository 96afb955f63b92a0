"""How large the messages of jobs are: all that people's tools ever see of them.

A message may be anything, written by anybody; it is measured where it lies and never fetched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

import apsw

from storage.connection import translated
from storage.queue_line import job_id, row_of

SIZES: Final = """
SELECT id, nonce, length(message) FROM jobs WHERE id IN (SELECT value FROM json_each(?))
"""


def message_sizes(db: apsw.Connection, jobs: Sequence[str]) -> dict[str, int]:
    """Bytes of the message of each of these jobs that is still kept."""
    rows = [found[0] for found in map(row_of, jobs) if found is not None]
    with translated():
        found = db.execute(SIZES, (json.dumps(rows),)).fetchall()
    return {
        job_id(row, nonce): size for row, nonce, size in cast("list[tuple[int, int, int]]", found)
    }
