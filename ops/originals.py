"""What people are told of the files that were read: which they named, and what could not be read.

Owns one small JSON file beside our private copies of named files, the way back from a copy to its
original, and the count of skipped lines; what the copies hold is `ops.material`'s. Promises that
looking never fails: a copy whose original is not known stands for itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.atomic import replace_file
from storage.names import is_clean_path
from storage.records import canonical_json

if TYPE_CHECKING:
    from storage.authority.reads import Reads

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


def skipped_lines(reads: Reads) -> int:
    """Lines of the sources that could not be read: too long, or no JSON object."""
    most: dict[str, int] = {}
    for cursor in reads.cursors():  # each reader of a source counts the same lines
        most[cursor.locator] = max(most.get(cursor.locator, 0), cursor.skipped)
    return sum(most.values())


def skipped_sentence(number: int) -> str:
    """What to say of them; "" for none."""
    lines = "1 line was" if number == 1 else f"{number:,} lines were"
    return f"{lines} skipped (too long, or not to be read)" if number else ""


def _known(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / _NAMES).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: path for name, path in found.items() if isinstance(path, str)}
