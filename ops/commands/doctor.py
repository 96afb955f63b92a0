"""`ops doctor`: all that memoryd needs, looked at once, with a hint where something is off."""

from __future__ import annotations

import click

from ops.checklist import show_checks
from ops.exits import Exit
from ops.health import (
    check_home,
    check_hosts,
    check_machine,
    check_projects,
    check_services,
)
from ops.invocation import Invocation, shared_options


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
    if not show_checks(checks, as_json=invocation.as_json, all_well="memoryd can work here."):
        click.get_current_context().exit(Exit.UNHEALTHY)
