"""A process that keeps a recall server busy: `python -I -m ops.bench.hook_load SOCKET CWD N`.

N connections, each with one question under way at any time. Says `ready` once every connection had
an answer, then goes on until it is killed or the server hangs up.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Sequence

from hooks.frames import request_line
from ops.bench.corpus import Corpus


def main(argv: Sequence[str]) -> int:
    """Ask until told otherwise."""
    path, cwd, count = argv
    corpus = Corpus(5)
    # Ever new questions: what was asked before may be answered from memory.
    questions = [corpus.text(120) for _ in range(997)]
    selector = selectors.DefaultSelector()
    for number in range(int(count)):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(path)
        selector.register(link, selectors.EVENT_READ, number)
        link.sendall(_question(cwd, questions, number))
    asked, heard = int(count), set[int]()
    while True:
        for key, _ in selector.select():
            link = key.fileobj  # type: ignore[assignment]
            part = link.recv(1 << 20)
            if not part:
                return 0
            if part.endswith(b"\n"):
                heard.add(key.data)
                if len(heard) == int(count):
                    print("ready", flush=True)
                    heard = {-1}
                link.sendall(_question(cwd, questions, asked))
                asked += 1


def _question(cwd: str, questions: Sequence[str], number: int) -> bytes:
    query = f"{questions[number % len(questions)]} {number}"
    return request_line(str(number), "recall", {"cwd": cwd, "query": query})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
