"""Names inside document keys (`<namespace>:<base64url of the external id>`)."""

from __future__ import annotations

import base64
import binascii

from storage.records import DocumentKey


def external_id(key: DocumentKey) -> str:
    """The external id that a document key was made of; "" for a malformed key."""
    _, _, encoded = key.partition(":")
    try:
        raw = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return ""
    return raw.decode("utf-8", "surrogatepass")
