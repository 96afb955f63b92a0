"""A writer process for crash tests: appends until killed, printing each acknowledged name.

Arguments: home, container, writer name, count, kill point ("" for none). A kill point ends the
process with SIGKILL inside the append that follows the tenth.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage.authority import journal, marker
from storage.authority import payloads as say
from storage.clock import SystemClock
from tests.storage.memory_samples import a_document, a_fact, a_quote, opened

AFTER = 10


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_before(function: Callable[..., Any]) -> Callable[..., Any]:  # Any: wraps whatever it gets
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        die()
        return function(*args, **kwargs)

    return wrapped


def dying_after(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        function(*args, **kwargs)
        die()

    return wrapped


def torn_append(
    events: Path, stream: journal.Stream, lines: list[bytes], *, before: int | None = None
) -> None:
    del before
    data = b"".join(line + b"\n" for line in lines)
    with stream.path(events).open("ab") as file:
        file.write(data[: len(data) * 2 // 3])
        file.flush()
        os.fsync(file.fileno())
    die()


def arm(point: str) -> None:
    match point:
        case "before journal":
            journal.append = dying_before(journal.append)
        case "torn journal":
            journal.append = torn_append  # type: ignore[assignment]
        case "after journal":
            journal.append = dying_after(journal.append)
        case "before swap":
            marker.swap = dying_before(marker.swap)
        case "after swap":
            marker.swap = dying_after(marker.swap)


def main(home: str, container: str, name: str, count: str, point: str) -> None:
    clock = SystemClock()
    store = opened(Path(home), container, create=False, clock=clock)  # type: ignore[arg-type]
    for number in range(int(count)):
        if point and number == AFTER:
            arm(point)
        said = f"{name}-{number}"
        store.append(
            [
                say.document_upserted(a_document(f"Text of {said}.", name=said)),
                say.fact_recorded(a_fact(f"Fact {said}."), [a_quote(said)]),
            ]
        )
        print(said, flush=True)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
