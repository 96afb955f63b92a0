"""What holds for every text: idempotent, local, total."""

from __future__ import annotations

import base64
import random
import string

from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.redaction import findings, is_clean, redact

ALNUM = string.ascii_letters + string.digits
_RANDOM = random.Random(17)
TOKENS = (
    "gh" + "p_" + "".join(_RANDOM.choices(ALNUM, k=36)),
    "sk" + "_live_" + "".join(_RANDOM.choices(ALNUM, k=24)),
    "xo" + "xb-" + "".join(_RANDOM.choices(ALNUM, k=24)),
    "AK" + "IA" + "".join(_RANDOM.choices(string.ascii_uppercase + "234567", k=16)),
)  # fmt: skip
PIECES = (
    *TOKENS, "password: ", "password=", "token is ", "[redacted:token]",
    "[redacted:", "]", "://", "@",
    "u:", '"', "'", "\\", "\\n", "\n", " ", "=", ":", "-----BEGIN RSA PRIVATE KEY-----", "-----END",
    "Bearer ", "cookie: a=", "v7Kq2xRw" + "9mTz4L", "密码是",
    "mysql -p", "+", "%3D", "\0", "\ud800",
    base64.b64encode(b"token=" + TOKENS[0].encode()).decode(), "A" * 40, "&key=",
    "…", "İ", ";", ",",
)  # fmt: skip

NAMES = ("get", "user", "token", "Key", "pass", "word", "Secret", "auth", "Max")

mixtures = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=14).map("".join)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
words = st.lists(
    st.sampled_from(
        ["run", "the", "tests", "before", "you", "merge", "and", "keep", "main", "green"]
    ),
    max_size=8,
)


@settings(max_examples=400, deadline=None)
@given(mixtures)
@example("password=" + TOKENS[0] + "[redacted:token]" + TOKENS[1])
@example("password: [redacted:password] is v7Kq2xRw" + "9mTz4L")
def test_redacting_twice_changes_nothing(text: str) -> None:
    """A redacted text is clean, also where secrets, placeholders and names touch each other."""
    once = redact(text)

    assert redact(once) == once
    assert is_clean(once)


@settings(max_examples=300, deadline=None)
@given(any_text)
def test_no_text_raises(text: str) -> None:
    """Any sequence of code points is a text, lone surrogates and NUL among them."""
    assert redact(redact(text)) == redact(text)


@settings(max_examples=300, deadline=None)
@given(mixtures)
def test_findings_are_ordered_and_apart(text: str) -> None:
    """Findings lie inside the text, in order, without overlaps, and are never empty."""
    last = 0
    for one in findings(text):
        assert last <= one.start < one.end <= len(text)
        last = one.end


@settings(max_examples=200, deadline=None)
@given(words, words, st.sampled_from(TOKENS))
def test_surrounding_text_is_untouched(before: list[str], after: list[str], token: str) -> None:
    """Only the token changes: what stands before and after it is the same, byte for byte."""
    lead, tail = " ".join([*before, ""]), " ".join(["", *after])

    redacted = redact(lead + token + tail)

    assert redacted.startswith(lead + "[redacted:")
    assert redacted.endswith("]" + tail)


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=20, max_size=20), st.uuids(), st.binary(min_size=48, max_size=48))
def test_digests_and_ids_of_any_content_stay(digest: bytes, identity: object, sri: bytes) -> None:
    """No git hash, UUID or integrity string is ever taken for a secret."""
    text = (
        f"commit {digest.hex()}\nsession {identity} resumed\n"
        f'"integrity": "sha384-{base64.b64encode(sri).decode()}"\n{digest.hex()}  dist/app.tar.gz'
    )

    assert redact(text) == text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=6), st.sampled_from(["", "_", "-", "."])
)
def test_identifiers_about_secrets_stay(parts: list[str], joint: str) -> None:
    """Names made of the very words the rules look for are code, not credentials."""
    name = joint.join(parts)

    for text in (name, f"{name}()", f"call {name} first", f"x = {name}", f"{name}: str"):
        assert redact(text) == text


@settings(max_examples=200, deadline=None)
@given(st.text(ALNUM, min_size=36, max_size=36).filter(lambda body: len(set(body)) > 8
       and any(map(str.isdigit, body)) and "xxx" not in body.lower()))  # fmt: skip
def test_any_body_after_a_platforms_prefix_leaves(body: str) -> None:
    """The prefix says what it is: the body may be anything that is not a placeholder."""
    assert body not in redact("use gh" + "p_" + body + " now")
