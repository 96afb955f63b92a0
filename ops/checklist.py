"""Checks as people and programs read them: a verdict, what was found, and what to do.

Shared by `ops doctor` and `ops health`; the checks themselves are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ops.health import Check, Verdict
from ops.output import count, show, styled, table
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.text import Text

MARKS: Mapping[Verdict, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "bold red"),
}


def show_checks(checks: Sequence[Check], *, as_json: bool, all_well: str) -> bool:
    """Shows them; whether none failed."""
    failed = sum(check.verdict == "fail" for check in checks)
    value: dict[str, JsonValue] = {
        "ok": failed == 0,
        "checks": [
            {
                "name": check.name,
                "verdict": check.verdict,
                "found": check.found,
                "hint": check.hint,
            }
            for check in checks
        ],
    }
    rows = [(styled(*MARKS[check.verdict]), check.name, _told(check)) for check in checks]
    closing = f"{count(failed, 'check')} failed." if failed else all_well
    show(as_json, value, [table(("", "what", "found"), rows), closing])
    return failed == 0


def _told(check: Check) -> Text:
    told = styled(check.found)
    if check.hint:
        told.append("\n").append_text(styled(check.hint, "italic"))
    return told
