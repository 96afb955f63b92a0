"""Every statement of the queue's modules compiles against the migrated schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import apsw.ext
import pytest

from storage import (
    activity,
    budget,
    circuits,
    leases,
    queue_control,
    queue_line,
    queue_values,
    queue_views,
    schedules,
    spool,
)
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.schema import migrations
from tests.support import ManualClock

MODULES = (
    activity, budget, circuits, leases, queue_control, queue_line, queue_values, queue_views,
    schedules, spool,
)  # fmt: skip
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def _statements(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        if (
            name.isupper()
            and isinstance(value, str)
            and value.split()[:1]
            and (value.split()[0] in VERBS)
        ):
            yield name, value


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_statement_compiles(module: ModuleType, home: Path) -> None:
    """A typo in a rarely used statement must not wait for its day."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    names = []
    for name, sql in _statements(module):
        if name == "LANES":
            continue
        apsw.ext.query_info(queue.file.db, sql)
        names.append(name)

    assert names
    queue.close()


def test_the_migrations_make_exactly_the_schema_that_is_shipped(home: Path) -> None:
    """Fresh and migrated are one thing: there is one road to the newest version."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    tables = {
        row[0]
        for row in queue.file.db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
        ).fetchall()
    }

    assert len(migrations("queue")) == queue.file.db.pragma("user_version") == 3
    assert tables == {
        "jobs", "pauses", "last_success", "budget_windows", "reservations", "schedules", "fired",
        "activity", "watermarks", "spooled", "huey_values", "circuits", "clock_mark",
    }  # fmt: skip
    strict = queue.file.db.execute(
        "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
        " AND name NOT LIKE 'sqlite_%' AND NOT strict"
    ).fetchall()
    assert strict == [(0,)]
    queue.close()
