"""The project id that an earlier program of the same home gave a folder, if that can be proven.

A checkout's own `.prjct/prjct.config.json` names an id; anybody can write that, so it counts only
when the home's checksummed `identity/index.json` lists the same folder under the same id. What is
missing, malformed or contradicting is no proof, and never an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from storage.atomic import NOFOLLOW
from storage.paths import HomePaths
from storage.records import JsonValue, ProjectId, canonical_json

PROJECT_ID: Final = re.compile(r"p_[A-Za-z0-9_-]{1,64}")
_MAX_LOCATOR_BYTES: Final = 65_536
_MAX_INDEX_BYTES: Final = 1_048_576


def confirmed_id(home: HomePaths, place: Path) -> ProjectId | None:
    """The id that both the checkout and the home's index name for this canonical folder."""
    claimed = _object(place / ".prjct" / "prjct.config.json", _MAX_LOCATOR_BYTES).get("projectId")
    if not isinstance(claimed, str) or not PROJECT_ID.fullmatch(claimed):
        return None
    envelope = _object(home.home / "identity" / "index.json", _MAX_INDEX_BYTES)
    payload = envelope.get("payload")
    if not isinstance(payload, Mapping) or not holds(payload, envelope.get("contentHash")):
        return None
    listed = payload.get("bindings")
    if not isinstance(listed, list):
        return None
    ids = {
        item.get("projectId")
        for item in listed
        if isinstance(item, Mapping) and item.get("location") == str(place)
    }
    return ProjectId(claimed) if ids == {claimed} else None


def holds(payload: JsonValue, digest: JsonValue) -> bool:
    """Whether a digest is the payload's: over our spelling of it, or over JavaScript's.

    JSON.stringify keeps the order of keys and writes letters beyond ASCII as they are.
    """
    if hashlib.sha256(canonical_json(payload)).hexdigest() == digest:
        return True
    plain = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest() == digest


def _object(file: Path, max_bytes: int) -> Mapping[str, JsonValue]:
    """The JSON object in a plain file of ours; empty when it is none."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | NOFOLLOW)
        with os.fdopen(fd, "rb") as opened:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                return {}
            raw = opened.read(max_bytes + 1)
        found = json.loads(raw) if len(raw) <= max_bytes else None
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
