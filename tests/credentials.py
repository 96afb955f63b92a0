"""Credentials for tests that look for what is kept: many kinds, each made at run time.

Owns the seeds, the sentences around them, and finding any of them in bytes, in the spellings that
storing can give a text. Nothing here is a real secret and none stands in a file.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import apsw
import brotli  # type: ignore[import-untyped]  # ships no stubs

from tests.storage.test_redaction import NAMED_PASSWORD, NAMED_TOKEN, PLATFORM

LETTERS = string.ascii_letters + string.digits
MIN_PART = 10
"""Bytes of a secret that count as a find: shorter runs occur by chance."""


@dataclass(frozen=True)
class Seed:
    """One credential and how people would write it down."""

    name: str
    secret: str
    phrase: str

    @cached_property
    def parts(self) -> frozenset[bytes]:
        """What may not be found: the secret's random middle, in every spelling."""
        middle = max(self.secret.split("\n"), key=len)
        core = middle[len(middle) // 3 :][:24] if len(middle) > 20 else middle
        raw = core.encode()
        spelled = {
            raw,
            json.dumps(core)[1:-1].encode(),
            json.dumps(json.dumps(core))[3:-3].encode(),
            quote(core, safe="").encode(),
            raw.hex().encode(),
            core.encode("utf-16-le"),
        }
        for shift in range(3):
            # Only the characters that the secret alone decides, wherever it stands in the run.
            encoded = base64.b64encode(b"x" * shift + raw)
            sure = encoded[(0, 2, 3)[shift] : (shift + len(raw)) * 8 // 6]
            spelled |= {sure, sure.translate(bytes.maketrans(b"+/", b"-_"))}
        return frozenset(part for part in spelled if len(part) >= MIN_PART)


def seeds() -> list[Seed]:
    """Platform tokens, named passwords and tokens, a key block, a split and an encoded secret."""
    found = [Seed(kind, secret, secret) for kind, secret in PLATFORM.items()]
    found += [_named("password", number, form, 12) for number, form in enumerate(NAMED_PASSWORD)]
    found += [_named("token", number, form, 40) for number, form in enumerate(NAMED_TOKEN)]
    body = "\n".join(_random(f"pem{line}", 64) for line in range(6))
    kind = "RSA PRIVATE" + " KEY"
    block = f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"
    found.append(Seed("key block", body, block))
    found.append(Seed("escaped key block", body[1:], block[:40] + block[40:].replace("\n", "\\n")))
    plain = "pass" + "word=" + _random("encoded", 30)
    found.append(Seed("base64", plain, base64.b64encode(plain.encode()).decode()))
    return found


def _named(what: str, number: int, form: str, size: int) -> Seed:
    secret = "v7" + _random(f"{what}{number}", size)
    return Seed(f"{what} {number}", secret, form.format(secret))


def _random(seed: str, size: int) -> str:
    return "".join(random.Random(seed).choices(LETTERS, k=size))


def found_in(home: Path, known: list[Seed]) -> list[tuple[str, str]]:
    """(file, name of the seed) of everything found below a folder: contents and names of files.

    Databases are looked at as bytes, and the compact image unpacked.
    """
    found = []
    for where, data in _bytes_below(home):
        found += [(where, seed.name) for seed in known if any(part in data for part in seed.parts)]
    return found


def _bytes_below(home: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(home.rglob("*")):
        name = str(path.relative_to(home))
        yield f"name of {name}", name.encode("utf-8", "surrogateescape")
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        yield name, data
        if data.startswith(b"SQLite format 3"):
            for blob in _blobs(path):
                yield f"{name} (unpacked)", blob


def _blobs(database: Path) -> Iterator[bytes]:
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%BLOB%'"):
            for row in db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, bytes):
                        yield value
                        try:
                            yield brotli.decompress(value)
                        except brotli.error:
                            continue
    finally:
        db.close()
