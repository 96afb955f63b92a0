"""The error tree: the class of an exception is what happens next.

A task body raises; `tasks.lease` alone maps the class to an outcome (retry, snooze, discard, stop).
Libraries' exceptions are translated where the library is called, with the cause chained.
Expected partial results are values (`gaps`), not exceptions.
"""

from __future__ import annotations

import errno
from typing import Final

FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How the operating system says that nothing more fits."""


class MemorydError(Exception):
    """memoryd could not do what was asked."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().splitlines()[0])


class Transient(MemorydError):
    """A passing fault: the same work may succeed later (outcome: retry with backoff)."""


class Busy(Transient):
    """Another process holds the write lock for longer than we may wait."""


class Stale(Transient):
    """The source or the store moved while the work ran; nothing was published."""


class SourceUnavailable(Transient):
    """A source could not be read now (missing root, permission, moved file)."""


class ModelUnavailable(Transient):
    """The model endpoint did not answer as agreed; the dispatched call stays charged."""


class QuotaSpent(ModelUnavailable):
    """The provider says that our quota there is spent, in whatever words."""


class Snooze(MemorydError):
    """The work must wait without using up an attempt (outcome: snooze)."""

    def __init__(self, message: str | None = None, *, until_at: int | None = None) -> None:
        super().__init__(message)
        self.until_at = until_at
        """UTC ms when it is worth trying again; None lets the queue choose."""


class BudgetExhausted(Snooze):
    """The daily budget is spent; work waits for the reset."""


class MissingModel(Snooze):
    """No model is configured for work that needs one."""


class ProviderPaused(Snooze):
    """The model's provider refused us lately; nothing is sent until a probe finds it well."""


class Invalid(MemorydError):
    """The input can never become valid (outcome: discard, with the reason kept)."""


class Refused(Invalid):
    """Admission refused the input: out of bounds, wrong provenance, or wrong owner."""


class UnknownJob(Invalid):
    """No body is registered for this kind of job, or its message is from a newer version."""


class LeaseLost(MemorydError):
    """The lease ended or another worker holds it: this run may publish nothing."""


class AlreadyApplied(MemorydError):
    """The effect of this job is already in the authority: only acknowledge."""


class Corrupt(MemorydError):
    """A file of ours fails its checks; nothing was changed (outcome: stop and tell)."""


class NewerSchema(Corrupt):
    """The file was written by a newer memoryd; this version will not touch it."""


class WrongOwner(Corrupt):
    """The store belongs to another project."""


class CapacityExceeded(MemorydError):
    """The compact container is full; the store must be promoted before it grows."""


class ConfigError(MemorydError):
    """The settings are not usable as written."""


class NotInitialized(MemorydError):
    """This folder has no memory yet: run `ops init` in it."""


class Unavailable(MemorydError):
    """A needed file, folder or service is not usable (permissions, disk, missing package)."""


class EncoderLost(Unavailable):
    """The encoder's process died or hung over these texts."""


class DiskFull(Unavailable):
    """The disk is full: free some space."""


def unusable(what: str, cause: OSError) -> Unavailable:
    """The error to raise for the operating system's, a full disk told apart."""
    if cause.errno in FULL_ERRNOS:
        return DiskFull(f"{what}: the disk is full: free some space")
    return Unavailable(f"{what} ({cause.strerror or cause})")
