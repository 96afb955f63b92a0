"""The stand-in for `dataclasses`: what our records rely on is as in the original."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks import plain_records

BOTH = pytest.mark.parametrize("module", [dataclasses, plain_records])


def records(module: ModuleType) -> dict[str, Any]:  # Any: classes made by either module
    """The shapes that this repository uses, made by one of the two modules."""

    @module.dataclass(frozen=True, slots=True)
    class Point:
        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        seen: list[int] = module.field(default_factory=list, compare=False)

        @property
        def total(self) -> int:
            return self.x + self.y

    @module.dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Point):
        name: str = "n"
        _cached: bytes | None = module.field(default=None, init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "name", self.name.lower())

    @module.dataclass(slots=True)
    class Open:
        values: dict[str, int] = module.field(default_factory=dict)

    @module.dataclass(frozen=True, slots=True, eq=False)
    class Same:
        x: int

    @module.dataclass(frozen=True, slots=True, order=True)
    class Ranked:
        rank: int
        word: str

    return {"Point": Point, "Named": Named, "Open": Open, "Same": Same, "Ranked": Ranked}


@BOTH
def test_fields_defaults_and_methods(module: ModuleType) -> None:
    """Given, default and made values; class variables, properties and inheritance."""
    made = records(module)
    point, named = made["Point"](1), made["Named"](x=5, name="ABC")

    assert (point.x, point.y, point.seen, point.total, point.kind) == (1, 2, [], 3, "point")
    assert made["Point"](1).seen is not point.seen
    assert (named.x, named.y, named.name, named._cached, named.total) == (5, 2, "abc", None, 7)
    assert [one.name for one in module.fields(named)] == ["x", "y", "seen", "name", "_cached"]
    assert module.asdict(made["Ranked"](1, "a")) == {"rank": 1, "word": "a"}
    assert module.is_dataclass(point)
    assert not hasattr(point, "__dict__")
    assert made["Point"].__match_args__ == ("x", "y", "seen")


@BOTH
def test_equality_hash_and_order(module: ModuleType) -> None:
    """By value where the class says so, by identity where it does not."""
    made = records(module)

    assert made["Point"](1, 2, [3]) == made["Point"](1, 2, [4])
    assert made["Point"](1) != made["Named"](x=1)
    assert len({made["Point"](1), made["Point"](1), made["Point"](2)}) == 2
    assert made["Same"](1) != made["Same"](1)
    assert min(made["Ranked"](2, "a"), made["Ranked"](1, "b")).word == "b"
    assert made["Open"]({"a": 1}) == made["Open"]({"a": 1})
    with pytest.raises(TypeError):
        hash(made["Open"]())


@BOTH
@pytest.mark.parametrize("wrong", [{}, {"x": 1, "z": 2}])
def test_a_call_that_does_not_fit_is_a_type_error(
    module: ModuleType, wrong: dict[str, int]
) -> None:
    """A missing or unknown argument is not passed over."""
    with pytest.raises(TypeError):
        records(module)["Point"](**wrong)


@given(st.integers(), st.integers(), st.integers())
def test_replaced_records_agree(x: int, y: int, other: int) -> None:
    """`replace` changes what it is given and keeps the rest, made anew by `__init__`."""
    ours, theirs = (records(module) for module in (plain_records, dataclasses))

    for name, changes in (("Point", {"y": other}), ("Named", {"name": "NEW"})):
        mine = plain_records.replace(ours[name](x=x, y=y), **changes)
        standard = dataclasses.replace(theirs[name](x=x, y=y), **changes)
        assert plain_records.asdict(mine) == dataclasses.asdict(standard)


def test_it_never_takes_the_place_of_what_is_already_imported() -> None:
    """Here everything else uses the original."""
    plain_records.install()

    assert sys.modules["dataclasses"] is dataclasses


def test_every_record_of_ours_can_be_made_by_it() -> None:
    """All our modules import under the stand-in, and settings and frames come out the same."""
    code = (
        "import json, pkgutil, sys\n"
        "from importlib import import_module\n"
        "if sys.argv[1] == 'plain':\n"
        "    from hooks import plain_records; plain_records.install()\n"
        "from dataclasses import fields\n"
        "import hooks.capture, hooks.recall_client, hooks.receipts, storage.authority.indexed\n"
        "from storage.config import Settings, load_settings\n"
        "from storage.paths import HomePaths\n"
        "from pathlib import Path\n"
        "found = load_settings(HomePaths(Path(sys.argv[2])), {'MEMORYD_ENCODER': 'hash'})\n"
        "print(json.dumps({s.name: {f.name: repr(getattr(getattr(found, s.name), f.name))\n"
        "    for f in fields(getattr(found, s.name))} for s in fields(found)}))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-I", "-c", code, which, os.devnull],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for which in ("plain", "standard")
    ]

    assert json.loads(told[0]) == json.loads(told[1])


def test_a_hook_without_a_server_uses_it(tmp_path: Path) -> None:
    """Neither `inspect` nor the original is imported by the command."""
    code = (
        "import runpy, sys\n"
        "sys.argv = ['hooks']\n"
        "import os; os._exit = lambda code: None\n"
        "runpy.run_module('hooks', run_name='__main__')\n"
        "print(sys.modules['dataclasses'].__name__, 'inspect' in sys.modules)\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, check=True, text=True, cwd=tmp_path
    )

    assert done.stdout.split() == ["hooks.plain_records", "False"]
