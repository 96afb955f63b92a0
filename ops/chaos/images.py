"""What a power cut may leave: every legal state of a folder, from the log of its disk.

Synced bytes are there. Of what was not synced, any part may be there and any part missing: each
write, truncation and name change for itself, whole or (the last write) cut at sectors of 512 and
4,096 bytes, from either end. A name made, moved or taken away is sure once its folder is synced.
Where the number of such states is small all are given, else a fixed sample that holds the extremes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.chaos.disk import Op

SECTORS: Final = (512, 4_096)
MAX_TEARS: Final = 24
EXHAUSTIVE_BITS: Final = 14
NAMING: Final = frozenset({"create", "unlink", "rename", "link", "mkdir", "rmdir"})
Tree = dict[str, bytes | None]
"""Path to content; None for a folder."""


@dataclass(frozen=True, slots=True)
class Image:
    """One legal state after a cut behind `point` calls."""

    point: int
    tree: Tree

    @property
    def digest(self) -> str:
        h = hashlib.sha256()
        for path, content in sorted(self.tree.items()):
            body = b"/" if content is None else content
            h.update(f"{path}\0{len(body)}\0".encode() + body)
        return h.hexdigest()

    def lay_out(self, folder: Path) -> None:
        """Make the folder hold exactly this."""
        for path, content in sorted(self.tree.items()):
            where = folder / path
            if not where.parent.is_dir():
                continue  # its folder's own name was lost
            if content is None:
                where.mkdir(mode=0o700, exist_ok=True)
            else:
                where.write_bytes(content)
                where.chmod(0o600)


def snapshot(folder: Path) -> Tree:
    """What a folder holds, shared-memory files aside."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = None
        elif not name.endswith("-shm"):
            found[name] = path.read_bytes()
    return found


@dataclass(slots=True)
class _Disk:
    """Inodes and names, as far as they are sure, and what is not sure yet."""

    contents: list[bytearray] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    """Path to inode; -1 for a folder. As the running system sees it."""
    sure: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[Op, int]] = field(default_factory=list)
    """Calls that a cut may undo, with the inode that each is about."""

    @classmethod
    def of(cls, tree: Tree) -> _Disk:
        made = cls()
        for path, content in tree.items():
            made.names[path] = made._inode(content)
        made.sure = dict(made.names)
        return made

    def _inode(self, content: bytes | None) -> int:
        if content is None:
            return -1
        self.contents.append(bytearray(content))
        return len(self.contents) - 1

    def step(self, op: Op) -> None:
        """One call happens."""
        if op.kind == "sync":
            self._settle(inode=self.names.get(op.path, -2))
        elif op.kind == "syncdir":
            self._settle(folder=op.path)
        else:
            if op.kind in {"create", "mkdir"}:
                self.names[op.path] = self._inode(b"" if op.kind == "create" else None)
            inode = self.names.get(op.path, -2)
            self.pending.append((op, inode))
            _name(self.names, op, inode)

    def _settle(self, *, inode: int = -2, folder: str | None = None) -> None:
        left: list[tuple[Op, int]] = []
        for op, about in self.pending:
            if op.kind in NAMING:
                parents = {str(Path(path).parent) for path in (op.path, op.to) if path}
                if folder is not None and folder in parents:
                    _name(self.sure, op, about)
                    continue
            elif about == inode:
                _change(self.contents[about], op)
                continue
            left.append((op, about))
        self.pending = left

    def image(self, chosen: Iterable[int], torn: Op | None = None) -> Tree:
        """The folder with the chosen pending calls done; `torn` in place of the last one."""
        contents = {at: bytearray(body) for at, body in enumerate(self.contents)}
        names = dict(self.sure)
        for index in sorted(chosen):
            op, inode = self.pending[index]
            if op.kind in NAMING:
                _name(names, op, inode)
            else:
                last = index == len(self.pending) - 1
                _change(contents[inode], torn if torn is not None and last else op)
        return {
            path: None if inode < 0 else bytes(contents[inode]) for path, inode in names.items()
        }


def images(
    start: Tree, log: Sequence[Op], chance: random.Random, *, exhaustive_bits: int = EXHAUSTIVE_BITS
) -> Iterator[Image]:
    """Distinct legal images: all, where no cut leaves more than `exhaustive_bits` calls open.

    Points of the log take turns, so that whoever stops early has left none of them out.
    """
    seen: set[str] = set()
    turns = [_at_point(start, log, point, chance, exhaustive_bits) for point in range(len(log) + 1)]
    chance.shuffle(turns)
    while turns:
        going: list[Iterator[Image]] = []
        for turn in turns:
            for image in turn:
                digest = image.digest
                if digest not in seen:
                    seen.add(digest)
                    yield image
                    going.append(turn)
                    break
        turns = going


def most_open(start: Tree, log: Sequence[Op]) -> int:
    """The most calls that any one cut leaves open."""
    disk, most = _Disk.of(start), 0
    for op in log:
        disk.step(op)
        most = max(most, len(disk.pending))
    return most


def legal_states(start: Tree, log: Sequence[Op]) -> int:
    """How many states all cuts together could leave, before equal ones are counted once."""
    disk, total = _Disk.of(start), 1
    for op in log:
        disk.step(op)
        total += 2 ** len(disk.pending) + len(list(_tears(disk)))
    return total


def _at_point(
    start: Tree, log: Sequence[Op], point: int, chance: random.Random, exhaustive_bits: int
) -> Iterator[Image]:
    disk = _Disk.of(start)
    for op in log[:point]:
        disk.step(op)
    count = len(disk.pending)
    for chosen in _subsets(count, chance, exhaustive_bits):
        yield Image(point, disk.image(chosen))
    for torn in _tears(disk):
        yield Image(point, disk.image(range(count), torn))
        yield Image(point, disk.image([count - 1], torn))


def _subsets(count: int, chance: random.Random, exhaustive_bits: int) -> Iterator[list[int]]:
    everything = range(count)
    if count <= exhaustive_bits:
        for bits in chance.sample(range(2**count), 2**count):
            yield [index for index in everything if bits >> index & 1]
        return
    yield []
    yield list(everything)
    for index in chance.sample(everything, count):
        yield [other for other in everything if other != index]
        yield [index]
        yield list(range(index))
        yield [other for other in everything if chance.random() < 0.5]


def _tears(disk: _Disk) -> Iterator[Op]:
    """The last write, cut short or with its beginning missing, at sector borders."""
    if not disk.pending or disk.pending[-1][0].kind != "write":
        return
    op, inode = disk.pending[-1]
    end = op.offset + len(op.data)
    cuts = {
        cut - op.offset
        for sector in SECTORS
        for cut in range((op.offset // sector + 1) * sector, end, sector)
    }
    some = sorted(cuts)[:: max(1, len(cuts) // MAX_TEARS)]
    for cut in some:
        yield Op("write", op.path, op.offset, op.data[:cut])
        yield Op("write", op.path, op.offset + cut, op.data[cut:])
    del inode


def _change(content: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
        return
    if len(content) < op.offset:
        content.extend(bytes(op.offset - len(content)))
    content[op.offset : op.offset + len(op.data)] = op.data


def _name(names: dict[str, int], op: Op, inode: int) -> None:
    match op.kind:
        case "create" | "mkdir":
            names[op.path] = inode
        case "link":
            names[op.to] = inode
        case "unlink" | "rmdir":
            names.pop(op.path, None)
        case "rename":
            moved = names.pop(op.path, None)
            if moved is not None:
                names[op.to] = moved
        case _:
            pass
