"""The audit: each invariant of the queue has a fault that is named after it."""

from __future__ import annotations

import re
from pathlib import Path

INVARIANTS = 20


def test_every_invariant_has_a_fault_of_its_name() -> None:
    """I1 to I20, in the names of the tests beside this one."""
    names = [
        name
        for path in Path(__file__).parent.glob("test_queue_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    ]

    found = {int(number) for name in names for number in re.findall(r"(?<=_)i(\d+)(?=_)", name)}

    assert found == set(range(1, INVARIANTS + 1))
