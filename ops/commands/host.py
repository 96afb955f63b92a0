"""`ops host`: connect an agent to this memory, disconnect it, and say which are connected."""

from __future__ import annotations

import sys

import click

from ops.hosts import HOSTS, TITLES, HostName, HostState, connect, disconnect, host_states
from ops.invocation import Invocation, shared_options
from ops.output import show, styled, table, write_json
from storage.records import JsonValue


@click.group()
def host() -> None:
    """Connect agents, or disconnect them."""


@host.command()
@click.argument("name", type=click.Choice(HOSTS))
@shared_options()
def install(invocation: Invocation, name: HostName) -> None:
    """Connect host NAME: one folder is added to the agent's own, no file of yours is touched."""
    target = connect(name, invocation.paths, invocation.environment)
    there = any(
        state.program for state in host_states(invocation.environment) if state.name == name
    )
    if invocation.as_json:
        write_json({"ok": True, "host": name, "adapter": str(target), "on_path": there})
        return
    print(f"{TITLES[name]} is connected: {target}")
    if not there:
        warning = f"{TITLES[name]} itself was not found on your PATH: install it, or mend PATH."
        print(f"Warning: {warning}", file=sys.stderr)
    print("It takes part from your next session on, in every project where you ran `ops init`.")
    print(f"To undo: ops host uninstall {name}")


@host.command()
@click.argument("name", type=click.Choice(HOSTS))
@shared_options()
def uninstall(invocation: Invocation, name: HostName) -> None:
    """Disconnect host NAME: the added folder is removed, memory stays."""
    removed = disconnect(name, invocation.environment)
    if invocation.as_json:
        write_json({"ok": True, "host": name, "removed": removed})
    elif removed:
        print(f"{TITLES[name]} is disconnected. What memoryd learned stays where it is.")
    else:
        print(f"{TITLES[name]} was not connected: nothing to remove.")


@host.command()
@shared_options()
def status(invocation: Invocation) -> None:
    """Show which hosts are connected."""
    states = host_states(invocation.environment)
    rows = [
        (
            TITLES[state.name],
            styled("connected", "green") if state.connected else styled("not connected", "dim"),
            state.program or "not found on PATH",
            str(state.target) if state.connected else f"ops host install {state.name}",
        )
        for state in states
    ]
    show(
        invocation.as_json,
        {"hosts": [_json(state) for state in states]},
        [table(("host", "state", "program", "where, or how to connect"), rows)],
    )


def _json(state: HostState) -> dict[str, JsonValue]:
    """One host for programs."""
    return {
        "host": state.name,
        "connected": state.connected,
        "program": state.program or None,
        "folder": str(state.folder),
        "adapter": str(state.target),
    }
