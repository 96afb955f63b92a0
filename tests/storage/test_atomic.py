"""Files replaced whole, lines appended whole, and locks that die with their holder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage import atomic
from storage.errors import Busy, Unavailable


def test_a_replaced_file_is_the_new_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Old content, temporary files and open modes do not survive a replacement."""
    path = tmp_path / "a.json"
    atomic.replace_file(path, b"old")

    atomic.replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_replacement_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error before the rename changes nothing and is named."""
    path = tmp_path / "a.json"
    atomic.replace_file(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(Unavailable):
        atomic.replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_torn_line_is_closed_before_the_next(tmp_path: Path) -> None:
    """What a crash left stays its own line; the new one stands whole."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"whole":1}\n{"torn":')

    atomic.append_line(path, b'{"next":2}')

    assert path.read_bytes() == b'{"whole":1}\n{"torn":\n{"next":2}\n'


def test_the_name_of_a_new_log_is_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's first line is durable only when its name is; later lines need no folder sync."""
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_directory", synced.append)

    for line in (b"1", b"2"):
        atomic.append_line(tmp_path / "log.jsonl", line)

    assert synced == [tmp_path]


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in the place of a log or a lock is refused, its target untouched."""
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    link = tmp_path / "link"
    link.symlink_to(target)

    with pytest.raises(Unavailable):
        atomic.append_line(link, b"ours")
    with pytest.raises(Unavailable), atomic.file_lock(link):
        pass

    assert target.read_bytes() == b"theirs"


def test_a_killed_holder_frees_its_lock(tmp_path: Path) -> None:
    """The kernel owns the lock: no stale one keeps the next process out."""
    path = tmp_path / "lock"
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom storage.atomic import file_lock\n"
        "with file_lock(Path(sys.argv[2])):\n    print('held', flush=True); sys.stdin.read()\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    holder = subprocess.Popen(
        [sys.executable, "-I", "-c", script, root, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy), atomic.file_lock(path, wait_s=0.05):
            pass
        holder.kill()

    with atomic.file_lock(path, wait_s=5):
        assert path.exists()
