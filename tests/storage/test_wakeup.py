"""The bell: rings every consumer, never fails the one who rings."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from storage.paths import HomePaths
from storage.queue_owner import Owner
from storage.wakeup import Listener, ring, socket_path


def test_a_ring_wakes_every_listener_once(home: Path) -> None:
    """Several rings before a listener looks count as one."""
    paths = HomePaths(home)
    owners = [Owner(paths), Owner(paths)]
    listeners = [Listener(paths, owner.name) for owner in owners]

    woken = [ring(paths) for _ in range(3)]

    assert woken == [2, 2, 2]
    assert [listener.wait(0) for listener in listeners] == [True, True]
    assert [listener.wait(0) for listener in listeners] == [False, False]
    for listener, owner in zip(listeners, owners, strict=True):
        listener.close()
        owner.close()
    assert list(paths.workers.iterdir()) == []


def test_ringing_without_consumers_or_folder_is_no_error(home: Path) -> None:
    """A hook must not fail because no worker runs, or because one died and left its files."""
    paths = HomePaths(home)
    nobody = ring(paths)
    owner = Owner(paths)
    listener = Listener(paths, owner.name)
    listener._socket.close()
    (paths.workers / "1-gone.lock").touch()

    assert nobody == 0
    assert ring(paths) == 0
    owner.close()


def test_a_full_socket_does_not_block_the_one_who_rings(home: Path) -> None:
    """A consumer that never reads must not stop a hook."""
    paths = HomePaths(home)
    owner = Owner(paths)
    listener = Listener(paths, owner.name)
    started = time.monotonic()

    for _ in range(2_000):
        ring(paths)

    assert time.monotonic() - started < 5
    assert listener.wait(0)
    listener.close()
    owner.close()


def test_a_waiting_listener_wakes_at_once(home: Path) -> None:
    """Not at the next poll."""
    paths = HomePaths(home)
    owner = Owner(paths)
    listener = Listener(paths, owner.name)
    woken = threading.Event()

    def wait() -> None:
        if listener.wait(10_000):
            woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    ring(paths)

    assert woken.wait(5)
    waiting.join()
    listener.close()
    owner.close()


def test_a_home_with_a_long_path_still_has_a_bell(tmp_path: Path) -> None:
    """Socket paths are short by the system's rule: a private folder stands in."""
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    paths = HomePaths(deep)
    owner = Owner(paths)
    listener = Listener(paths, owner.name)
    where = socket_path(paths, owner.name)

    assert len(str(where)) <= 104
    assert where.parent.stat().st_mode & 0o777 == 0o700
    assert ring(paths) == 1
    assert listener.wait(0)
    listener.close()
    owner.close()
    assert not where.exists()
