"""`ops doctor`: all that memoryd needs, looked at once, with a hint where something is off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ops.exits import Exit
from ops.health import (
    Check,
    Verdict,
    check_home,
    check_hosts,
    check_machine,
    check_projects,
    check_services,
)
from ops.invocation import Invocation, shared_options
from ops.output import count, show, styled, table
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.text import Text

MARKS: Mapping[Verdict, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "bold red"),
}


@click.command()
@shared_options()
def doctor(invocation: Invocation) -> None:
    """Check everything that memoryd needs.

    The machine, the home, each memory, the agents, the background. Exit code 4 if one fails.
    """
    checks = [
        *check_machine(invocation.paths),
        *check_home(invocation.paths, invocation.environment),
        *check_projects(invocation.paths, invocation.environment, invocation.clock),
        *check_services(invocation.paths),
        *check_hosts(invocation.environment),
    ]
    failed = sum(check.verdict == "fail" for check in checks)
    value: dict[str, JsonValue] = {
        "ok": failed == 0,
        "checks": [_json(check) for check in checks],
    }
    rows = [(styled(*MARKS[check.verdict]), check.name, _told(check)) for check in checks]
    closing = f"{count(failed, 'check')} failed." if failed else "memoryd can work here."
    show(invocation.as_json, value, [table(("", "what", "found"), rows), closing])
    if failed:
        click.get_current_context().exit(Exit.UNHEALTHY)


def _told(check: Check) -> Text:
    told = styled(check.found)
    if check.hint:
        told.append("\n").append_text(styled(check.hint, "italic"))
    return told


def _json(check: Check) -> dict[str, JsonValue]:
    return {
        "name": check.name,
        "verdict": check.verdict,
        "found": check.found,
        "hint": check.hint,
    }
