"""Which file a person named for each private copy that memoryd reads in its place.

Owns one small JSON file beside the copies, and the way back from a copy to its original; what the
copies hold is `ops.material`'s. Promises that looking never fails: a copy whose original is not
known stands for itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from storage.atomic import replace_file
from storage.names import is_clean_path
from storage.records import canonical_json

FOLDER: Final = "given"
"""Where a project's copies lie."""
_NAMES: Final = "originals.json"


def remember_original(copy: Path, original: Path) -> None:
    """Write down which file the copy was made from; a path that holds a credential is left out.

    Raises:
        Unavailable: the folder cannot be written.
    """
    known = _known(copy.parent)
    if known.get(copy.name) == str(original) or not is_clean_path(str(original)):
        return
    replace_file(
        copy.with_name(_NAMES), canonical_json({**known, copy.name: str(original)}) + b"\n"
    )


def original_of(locator: str) -> str:
    """The file that the person named, for a copy of ours; any other path as it is."""
    path = Path(locator)
    if path.parent.name != FOLDER:
        return locator
    return _known(path.parent).get(path.name, locator)


def _known(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / _NAMES).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: path for name, path in found.items() if isinstance(path, str)}
