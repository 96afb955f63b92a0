"""`ops version`: what is installed. Imports nothing heavy: it is also the launcher's own test."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

import click

from ops.invocation import Invocation, shared_options
from ops.output import write_json


@click.command()
@shared_options()
def version(invocation: Invocation) -> None:
    """Show what is installed."""
    found = {name: installed_version(name) for name in ("memoryd", "apsw", "huey")}
    if invocation.as_json:
        write_json({**found, "python": platform.python_version()})
        return
    print(
        f"memoryd {found['memoryd']} (Python {platform.python_version()},"
        f" apsw {found['apsw']}, huey {found['huey']})"
    )
