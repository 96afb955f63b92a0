"""The one gate for credentials: nothing durable is written before it went through here.

Owns the decision (which characters of a text are credentials) and the form of the result: every
finding becomes `[redacted:<rule>]`, everything else stays byte for byte. Promises that redacting
twice changes nothing, that cost grows linearly with the text, and that no input raises. The rules
themselves live in the `redaction_*` modules; whether a changed text may be kept is the caller's.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from storage import (
    redaction_commands,
    redaction_keywords,
    redaction_prefixes,
    redaction_prose,
    redaction_structures,
)
from storage.records import JsonValue, RedactedText
from storage.redaction_keywords import Claim, claim_of, is_credential
from storage.redaction_values import PLACEHOLDER, Finding, is_random
from storage.redaction_views import decoded_runs, unfold

__all__ = ["RULES", "Finding", "findings", "is_clean", "is_learnable", "redact", "redact_json"]

RULES: Final = frozenset({"base64", "too-deep", "unstable", "unsupported"}).union(
    redaction_commands.RULES,
    redaction_keywords.RULES,
    redaction_prefixes.RULES,
    redaction_prose.RULES,
    redaction_structures.RULES,
)

# One pass settles a text; a replacement can give its neighbour a new left edge, hence a few more.
_MAX_PASSES: Final = 6
_MAX_DEPTH: Final = 64
_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})


def redact(text: str) -> RedactedText:
    """The text with every credential replaced by the name of the rule that saw it."""
    for _ in range(_MAX_PASSES):
        found = findings(text)
        if not found:
            return RedactedText(text)
        text = _replace(text, found)
    return RedactedText(text if not findings(text) else "[redacted:unstable]")


def findings(text: str) -> tuple[Finding, ...]:
    """What `redact` would replace, in order and without overlaps."""
    masked = PLACEHOLDER.sub(_mask, text) if "[redacted:" in text else text
    found = list(_all(masked))
    view = unfold(masked)
    if view:
        found += (view.original(each) for each in _all(view.text) if view.crosses_fold(each))
    for start, end, content in decoded_runs(masked):
        if next(_all(PLACEHOLDER.sub(_mask, content)), None):
            found.append(Finding("base64", start, end))
    if masked is not text:
        found = [part for each in found for part in _unmasked(masked, each)]
    return tuple(_merge(found))


def is_clean(text: str) -> bool:
    """True if the redacted form equals the original."""
    return not findings(text)


def is_learnable(text: str) -> bool:
    """True if nothing was or would be redacted in it: a statement with a hole is no rule."""
    return PLACEHOLDER.search(text) is None and is_clean(text)


def redact_json(value: JsonValue) -> JsonValue:
    """The value with every key and every string in it redacted, whatever their depth.

    A key names its value as it would in text, a flag names the next item of a list, and a
    `name`/`value` pair of fields counts as one. What is nested too deep is replaced as a whole.
    """
    return _redact_value(value, Claim.NONE, 0)


def _all(text: str) -> Iterator[Finding]:
    # Most rules are about ASCII: one byte a character makes every search in them several times
    # cheaper, and a question mark for all else moves nothing.
    plain = text if text.isascii() else text.encode("ascii", "replace").decode("ascii")
    lowered = plain.lower()
    return chain(
        redaction_prefixes.find_prefixed(plain),
        redaction_structures.find_structured(plain, lowered),
        redaction_keywords.find_named(text, lowered),
        redaction_prose.find_spoken(text, lowered),
        redaction_commands.find_typed(plain, lowered),
    )


def _mask(placeholder: re.Match[str]) -> str:
    """As many NULs: what was redacted is neither a name nor a value to any rule."""
    return "\0" * len(placeholder.group())


def _unmasked(masked: str, finding: Finding) -> Iterator[Finding]:
    """The finding; if it holds placeholders, what is random between them."""
    value = masked[finding.start : finding.end]
    if "\0" not in value:
        yield finding
        return
    for part in re.finditer(r"[^\0]+", value):
        if is_random(part.group()):
            yield Finding(finding.rule, finding.start + part.start(), finding.start + part.end())


def _merge(found: Iterable[Finding]) -> Iterator[Finding]:
    """Overlapping findings as one, named by the one that starts first and reaches furthest."""
    last: Finding | None = None
    for each in sorted(found, key=lambda one: (one.start, -one.end)):
        if last and each.start < last.end:
            last = Finding(last.rule, last.start, max(last.end, each.end))
            continue
        if last:
            yield last
        last = each
    if last:
        yield last


def _replace(text: str, found: Sequence[Finding]) -> str:
    parts: list[str] = []
    after = 0
    for finding in found:
        parts += (text[after : finding.start], f"[redacted:{finding.rule}]")
        after = finding.end
    return "".join((*parts, text[after:]))


def _redact_value(value: JsonValue, claim: Claim, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        return "[redacted:too-deep]"
    if isinstance(value, str):
        return _redact_string(value, claim)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if claim is not Claim.PASSWORD else _redact_number(value)
    if isinstance(value, Mapping):
        return _redact_mapping(value, claim, depth)
    if isinstance(value, list | tuple):
        return _redact_list(value, claim, depth)
    return "[redacted:unsupported]"


def _redact_string(value: str, claim: Claim) -> str:
    if claim is not Claim.NONE and not PLACEHOLDER.search(value) and is_credential(claim, value):
        return f"[redacted:{redaction_keywords.RULE_OF[claim]}]"
    return redact(value)


def _redact_number(value: float) -> JsonValue:
    return "[redacted:password]" if is_credential(Claim.PASSWORD, str(value)) else value


def _redact_mapping(value: Mapping[str, JsonValue], claim: Claim, depth: int) -> JsonValue:
    result: dict[str, JsonValue] = {}
    named = value.get("name", value.get("key"))
    pair = claim_of(named) if isinstance(named, str) and "value" in value else Claim.NONE
    for key, inner in value.items():
        name = str(key)
        inner_claim = max(claim_of(name), pair if name == "value" else Claim.NONE, claim)
        shown = _unused(redact(name), result)
        if name.lower() in _HEADERS and isinstance(inner, str):
            lead = f"{name}: "
            result[shown] = redact(lead + inner).removeprefix(lead)
        else:
            result[shown] = _redact_value(inner, inner_claim, depth + 1)
    return result


def _unused(key: str, taken: Mapping[str, JsonValue]) -> str:
    """The key, numbered if two secret keys became the same placeholder."""
    number, shown = 2, key
    while shown in taken:
        shown, number = f"{key}#{number}", number + 1
    return shown


def _redact_list(value: Sequence[JsonValue], claim: Claim, depth: int) -> JsonValue:
    result: list[JsonValue] = []
    before: JsonValue = None
    for item in value:
        flag = isinstance(before, str) and before.startswith("-") and "=" not in before
        own = claim_of(before) if flag and isinstance(before, str) else Claim.NONE
        result.append(_redact_value(item, max(own, claim), depth + 1))
        before = item
    return result
