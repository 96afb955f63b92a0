"""Short ids: the first characters that people see of an id, and what they mean when they type them.

Owns the shortening of facts' and jobs' ids and finding the one that is meant. Promises that what
any verb shows is accepted by every verb that takes an id, and that nothing is guessed: first
characters that several share are refused with the longer ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Final

from storage.errors import Refused

FACT: Final = "mem_"
LEAST: Final = 6
"""Fewer characters than this are never shown, so that an id typed today still works tomorrow."""
SHOWN: Final = 3
"""Candidates that a refusal names."""


def bare(full: str) -> str:
    """A fact's id without what all of them begin with."""
    return full.removeprefix(FACT)


def shortened_to(ids: Iterable[str]) -> int:
    """How many characters tell all of these ids apart, and a few more."""
    known = sorted({bare(full) for full in ids})
    shared = max((_common(one, other) for one, other in pairwise(known)), default=0)
    return max(LEAST, shared + 2)


def job(full: str) -> str:
    """A job's short id: its row's number, which no other job has at the same time."""
    return full.partition("-")[0]


def chosen(wanted: str, ids: Collection[str], what: str, listing: str) -> str:
    """The one id that begins with `wanted`.

    Raises:
        Refused: none does, or several do.
    """
    start = bare(wanted.strip().lower())
    found = sorted(full for full in ids if bare(full) == start)
    found = found or sorted(full for full in ids if start and bare(full).startswith(start))
    if not found:
        raise Refused(f"There is no {what} {wanted}: see `{listing}`.")
    if len(found) > 1:
        length = shortened_to(found)
        named = ", ".join(bare(full)[:length] for full in found[:SHOWN])
        more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
        raise Refused(f"{wanted} begins {len(found):,} ids: {named}{more}.")
    return found[0]


def chosen_job(wanted: str, ids: Collection[str], listing: str) -> str:
    """The one job that is meant by a row's number, by the whole id, or by its beginning.

    Raises:
        Refused: none is.
    """
    start = wanted.strip().lower()
    for full in ids:
        if start in {full, job(full)} or ("-" in start and full.startswith(start)):
            return full
    raise Refused(f"There is no job {wanted}: see `{listing}`.")


def _common(one: str, other: str) -> int:
    """How many first characters two texts share."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
