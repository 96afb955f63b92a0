"""Migrations: numbered, one transaction each, newer refused, and every statement compiles."""

from __future__ import annotations

import importlib
from types import ModuleType

import apsw
import pytest

from storage import schema
from storage.authority.derived import connect, create, follow
from storage.authority.marker import CREATE_MARKER
from storage.connection import open_memory
from storage.errors import Corrupt, NewerSchema
from storage.schema import Migration, current_version, migrate, migrations, require_current

MODULES = [
    importlib.import_module(f"storage.authority.{name}")
    for name in (
        "backlog", "compact", "derived", "documents", "facts", "history", "image", "marker",
        "promote", "proof", "reads", "reduce", "vector_rows",
    )
]  # fmt: skip


def shape(db: apsw.Connection) -> list[apsw.SQLiteValues]:
    return db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def statements(module: ModuleType) -> list[str]:
    found: list[str] = []
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, str) and value.lstrip()[:6].upper() in {
            "SELECT", "INSERT", "UPDATE", "DELETE",
        }:  # fmt: skip
            found.append(value)
    return found


def test_a_fresh_file_and_a_migrated_one_have_one_shape() -> None:
    """All steps from nothing give what the steps one by one give."""
    fresh, stepped = open_memory(), open_memory()
    migrate(fresh, "memory")
    for step in migrations("memory"):
        stepped.execute(step.sql)

    assert shape(fresh) == shape(stepped)
    assert schema.schema_version(fresh) == current_version("memory")
    assert migrate(fresh, "memory") == current_version("memory")


def test_every_table_of_ours_is_strict() -> None:
    """Values have the type their column says."""
    db = open_memory()
    migrate(db, "memory")

    tables = db.execute(
        "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    )

    assert [
        name for name, strict in tables if not strict and not str(name).startswith("sqlite_")
    ] == []


@pytest.mark.parametrize("module", MODULES, ids=[module.__name__ for module in MODULES])
def test_every_statement_compiles_against_the_schema(module: ModuleType) -> None:
    """No statement names a column that is not there."""
    db = open_memory()
    migrate(db, "memory")
    connect(db)
    create(db)
    follow(db)
    db.execute(CREATE_MARKER)

    for statement in statements(module):
        if "vec_" not in statement and "main.sqlite_master" not in statement:
            bindings = (None,) * statement.count("?")
            db.execute(f"EXPLAIN {statement}", bindings).fetchall()


def test_a_newer_file_is_refused_and_an_older_one_named() -> None:
    """Opening runs no DDL: it only says what is wrong."""
    db = open_memory()
    with pytest.raises(Corrupt):
        require_current(db, "memory", "m")
    db.pragma("user_version", 99)

    with pytest.raises(NewerSchema):
        require_current(db, "memory", "m")
    with pytest.raises(NewerSchema):
        migrate(db, "memory")


def test_a_failing_step_leaves_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction a step; the backup comes before the first change of a filled file."""
    db = open_memory()
    migrate(db, "memory")
    wanted = current_version("memory")
    good = Migration(wanted + 1, "good", "CREATE TABLE extra (x INTEGER) STRICT")
    bad = Migration(wanted + 2, "bad", "CREATE TABLE half (x INTEGER) STRICT; SELECT nonsense()")
    steps = (*migrations("memory"), good, bad)
    monkeypatch.setattr(schema, "migrations", lambda _: steps)
    backups: list[int] = []

    with pytest.raises(apsw.SQLError):
        migrate(db, "memory", before_first=backups.append)

    assert backups == [wanted]
    assert schema.schema_version(db) == wanted + 1
    names = {row[1] for row in shape(db)}
    assert "extra" in names
    assert "half" not in names
