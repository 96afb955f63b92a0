"""`ops doctor`: all that memoryd needs, looked at once, with a hint where something is off."""

from __future__ import annotations

from collections.abc import Mapping

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

MARKS: Mapping[Verdict, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "bold red"),
}


@click.command()
@shared_options()
def doctor(invocation: Invocation) -> None:
    """Check the machine, the home, the agents and the background; exit code 4 if anything fails."""
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
    rows = [
        (styled(*MARKS[check.verdict]), check.name, check.found, check.hint) for check in checks
    ]
    closing = f"{count(failed, 'check')} failed." if failed else "memoryd can work here."
    show(invocation.as_json, value, [table(("", "what", "found", "what to do"), rows), closing])
    if failed:
        click.get_current_context().exit(Exit.UNHEALTHY)


def _json(check: Check) -> dict[str, JsonValue]:
    return {
        "name": check.name,
        "verdict": check.verdict,
        "found": check.found,
        "hint": check.hint,
    }
