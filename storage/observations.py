"""A learnable observation: one line of memoryd's own session log.

Hooks write them (one append a turn), the `pi-session` adapter reads them back. An observation is
admitted when it is made and again when it is read: the file is text that anyone may have edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from storage.bounded import MAX_NAME_CHARS, clean, instant, shortened
from storage.errors import Refused
from storage.records import JsonValue, Provenance, RedactedText, canonical_json, digest_of
from storage.redaction import redact

VERSION: Final = 1
MAX_EXCERPT_BYTES: Final = 8_192
_NOTHING: Final = RedactedText("")


class ObservationKind(StrEnum):
    """What an observation may teach."""

    FAILURE = "failure"
    CORRECTION = "correction"
    INSTRUCTION = "instruction"
    DECISION = "decision"
    PROCEDURE = "procedure"
    PREFERENCE = "preference"
    CONSTRAINT = "constraint"
    LEARNING = "learning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Something a session showed, redacted and bounded."""

    kind: ObservationKind
    text: RedactedText
    session_id: str
    observed_at: int
    provenance: Provenance
    tool: str = ""
    tool_call_id: str = ""
    host: str = ""
    detail: RedactedText = _NOTHING
    """What it was about: the command that failed, the sentence before the correction."""
    line: int = 0
    """1-based line of the host's transcript, 0 when it has none."""

    @property
    def observation_id(self) -> str:
        """`obs_` + 32 hex over session, kind and wording: the same thing twice has one id."""
        return "obs_" + digest_of(self.session_id, self.kind.value, self.text, self.detail)[:32]

    def line_bytes(self) -> bytes:
        """The log line (canonical JSON, no newline)."""
        return canonical_json(
            {
                "v": VERSION,
                "id": self.observation_id,
                "kind": self.kind.value,
                "text": self.text,
                "detail": self.detail,
                "session": self.session_id,
                "at": self.observed_at,
                "provenance": self.provenance.value,
                "tool": self.tool,
                "call": self.tool_call_id,
                "host": self.host,
                "line": self.line,
            }
        )


def admit_observation(
    kind: ObservationKind,
    text: str,
    *,
    session_id: str,
    observed_at: int,
    provenance: Provenance,
    tool: str = "",
    tool_call_id: str = "",
    host: str = "",
    detail: str = "",
    line: int = 0,
) -> Observation:
    """An observation for the session log; long text loses its middle.

    Raises:
        Refused: no text, no instant, or a native observation without its tool call.
    """
    kept = RedactedText(shortened(redact(clean(text).strip()), MAX_EXCERPT_BYTES))
    if not kept:
        raise Refused("an observation without text")
    if provenance is Provenance.NATIVE_OBSERVATION and not tool:
        raise Refused("only a tool's result is a native observation")
    return Observation(
        kind=kind,
        text=kept,
        session_id=_name(session_id),
        observed_at=instant("observed_at", observed_at),
        provenance=provenance,
        tool=_name(tool),
        tool_call_id=_name(tool_call_id),
        host=_name(host),
        detail=RedactedText(shortened(redact(clean(detail).strip()), MAX_EXCERPT_BYTES)),
        line=max(0, line),
    )


def observation_from(document: JsonValue) -> Observation:
    """The observation of a decoded log line, admitted anew.

    Raises:
        Refused: not an observation of a known version.
    """
    if not isinstance(document, Mapping) or document.get("v") != VERSION:
        raise Refused("not an observation of a known version")
    try:
        return admit_observation(
            ObservationKind(_text(document, "kind")),
            _text(document, "text"),
            session_id=_text(document, "session"),
            observed_at=_int(document, "at"),
            provenance=Provenance(_text(document, "provenance")),
            tool=_text(document, "tool"),
            tool_call_id=_text(document, "call"),
            host=_text(document, "host"),
            detail=_text(document, "detail"),
            line=_int(document, "line"),
        )
    except ValueError as cause:
        raise Refused(f"a malformed observation ({cause})") from cause


def _name(text: str) -> str:
    kept = redact(clean(text))
    if len(kept) > MAX_NAME_CHARS:
        raise Refused(f"a name of {len(kept)} characters; at most {MAX_NAME_CHARS} are kept")
    return kept


def _text(document: Mapping[str, JsonValue], key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        raise Refused(f"{key}: not a text")
    return value


def _int(document: Mapping[str, JsonValue], key: str) -> int:
    value = document.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(f"{key}: not a whole number")
    return value
