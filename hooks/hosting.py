"""The hosts that a hook may name, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from hooks.events import HookEvent, HookOutcome
from hooks.hosts import claude, pi


class Host(Protocol):
    """One host's wire format (a module of `hooks.hosts`)."""

    def parse(self, event: str, payload: Mapping[str, object]) -> HookEvent | None:
        """The event that the host reported; None when it means nothing here."""
        ...

    def render(self, event: HookEvent, outcome: HookOutcome) -> dict[str, object] | None:
        """The host's own JSON for an outcome; None = print nothing."""
        ...


HOSTS: Final[Mapping[str, Host]] = {claude.HOST: claude, pi.HOST: pi}


def host_named(name: str) -> Host | None:
    """The host of that name."""
    return HOSTS.get(name)
