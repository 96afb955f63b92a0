"""`ops health`: whether the background does its work, for people and for monitors."""

from __future__ import annotations

import click

from ops.checklist import show_checks
from ops.exits import Exit
from ops.invocation import Invocation, shared_options
from ops.vitals import vitals


@click.command()
@shared_options()
def health(invocation: Invocation) -> None:
    """Tell whether the background does its work, by what it did.

    Exit code 0 when it is healthy, 4 when a check fails, 3 when there is no memory here yet. What a
    machine needs is checked by `ops doctor`.
    """
    checks = vitals(invocation)
    if not show_checks(checks, as_json=invocation.as_json, all_well="The background is healthy."):
        click.get_current_context().exit(Exit.UNHEALTHY)
