"""The compact store while it is in use: an in-memory database with the base tables.

The `vectors` table lives in a second database of the same connection (`vec`), because int8 vectors
do not compress: the main database goes through Brotli, the other is stored as it is. Queries see
one set of tables. Leaves the row on disk to `compact` and `marker`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final, Self, TypeVar

import apsw
import brotli  # type: ignore[import-untyped]  # ships no stubs; used here only

from storage.authority.marker import Stored
from storage.connection import open_memory, transaction
from storage.errors import Corrupt
from storage.schema import current_version, migrate, schema_version

PAGE_BYTES: Final = 1_024
"""Some thirty small tables: 4 KiB pages would treble an empty store before compression."""
QUALITY: Final = 2
"""Measured on 120 facts with history, 550 KB: 2 takes 2.2 ms, 4 takes 3.8 ms for 3 % less."""

SELECT_VECTORS_DDL: Final = "SELECT sql FROM main.sqlite_master WHERE name = 'vectors'"
COUNT_CHUNKS: Final = "SELECT count(*) FROM slices"
COUNT_VECTORS: Final = "SELECT count(*) FROM vectors"


T = TypeVar("T")


class Image:
    """One state of a compact store; changed in place only while nobody reads it."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.readers = 0
        self.migrated_from = 0
        """The schema that the row still has, when it is an older one."""
        db.pragma("query_only", True)

    @classmethod
    def empty(cls) -> Self:
        """A store in which nothing has happened."""
        db = open_memory()
        db.pragma("page_size", PAGE_BYTES)
        migrate(db, "memory")
        row = db.execute(SELECT_VECTORS_DDL).fetchone()
        assert row is not None
        db.execute("DROP TABLE main.vectors")
        db.execute("ATTACH ':memory:' AS vec")
        db.execute(str(row[0]).replace("CREATE TABLE vectors", "CREATE TABLE vec.vectors", 1))
        return cls(db)

    @classmethod
    def unpack(cls, stored: Stored) -> Self:
        """The store that lies in a row whose digest was proven.

        Raises:
            Corrupt: the bytes are no database after all.
            NewerSchema: written by a newer memoryd.
        """
        try:
            return cls.of(brotli.decompress(stored.state), stored.vectors)
        except (brotli.error, apsw.Error) as cause:
            raise Corrupt(f"the memory row does not hold a database ({cause})") from cause

    @classmethod
    def of(cls, main: bytes, vectors: bytes | None) -> Self:
        """The store with these database files."""
        if vectors is None:
            with closing(cls.empty().db) as db:
                vectors = db.serialize("vec")
        db = open_memory()
        db.execute("ATTACH ':memory:' AS vec")
        db.deserialize("main", main)
        db.deserialize("vec", vectors)
        if schema_version(db) == 0:
            raise Corrupt("the memory row holds an empty database")
        found = migrate(db, "memory")
        image = cls(db)
        image.migrated_from = found if found < current_version("memory") else 0
        return image

    def clone(self) -> Image:
        """The same store once more, so that readers of this one see no change."""
        image = Image.of(self.db.serialize("main"), self.db.serialize("vec"))
        image.migrated_from = self.migrated_from
        return image

    def compact(self) -> None:
        """Rewrite both databases, so that no page holds what was deleted."""
        self.db.pragma("query_only", False)
        try:
            self.db.execute("VACUUM main")
            self.db.execute("VACUUM vec")
        finally:
            self.db.pragma("query_only", True)

    def change(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` in one transaction of the image: all of it, or nothing."""
        self.db.pragma("query_only", False)
        try:
            with transaction(self.db):
                return work(self.db)
        finally:
            self.db.pragma("query_only", True)

    def sizes(self) -> tuple[int, int]:
        """(bytes of both databases, chunks)."""
        vectors = self._bytes_of("vec") if self._count(COUNT_VECTORS) else 0
        return self._bytes_of("main") + vectors, self._count(COUNT_CHUNKS)

    def pack(self) -> Stored:
        """The store as it goes into the row."""
        return Stored(brotli.compress(self._raw(), quality=QUALITY), self._raw_vectors())

    def close(self) -> None:
        """Free the memory; readers must be gone."""
        self.db.close(True)

    def _raw(self) -> bytes:
        return self.db.serialize("main")

    def _raw_vectors(self) -> bytes | None:
        return self.db.serialize("vec") if self._count(COUNT_VECTORS) else None

    def _bytes_of(self, schema: str) -> int:
        """As long as its serialised form, which need not be made to know that."""
        pages = self.db.pragma("page_count", schema=schema)
        size = self.db.pragma("page_size", schema=schema)
        return int(str(pages)) * int(str(size))

    def _count(self, statement: str) -> int:
        row = self.db.execute(statement).fetchone()
        assert row is not None
        return int(str(row[0]))
