"""A disk that remembers: every write, truncation, sync and name change below one folder, in order.

SQLite's files are seen through a VFS of apsw, everything else through the functions of `os` (and by
comparing contents where C code wrote through a file object). The same disk can fail a chosen call,
or skip syncs to be fast. One at a time in a process; leaves what a crash makes of the log to
`images`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import apsw

OpKind = Literal[
    "create", "write", "truncate", "sync", "unlink", "rename", "link", "mkdir", "rmdir", "syncdir"
]
Harm = Literal["io", "full"]
PATCHED: Final = (
    "open", "close", "write", "fsync", "ftruncate", "unlink", "rename", "replace", "link", "mkdir",
    "rmdir",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Op:
    """One call that reached the disk; `path` is relative to the folder."""

    kind: OpKind
    path: str
    offset: int = 0
    """Of a write; the new size for a truncation."""
    data: bytes = b""
    to: str = ""


@dataclass(slots=True)
class Harmed:
    """Which call fails, and how; 0 for none."""

    at: int = 0
    how: Harm = "io"
    sticky: bool = False
    seen: int = 0

    def step(self, fails: Callable[[Harm], Exception]) -> None:
        """Count one call that changes the disk; raise where it is the chosen one."""
        self.seen += 1
        if self.at and (self.seen == self.at or (self.sticky and self.seen > self.at)):
            raise fails(self.how)


@dataclass(slots=True)
class Disk:
    """The log, and the harm that is armed."""

    root: Path
    syncing: bool = True
    log: list[Op] = field(default_factory=list)
    harm: Harmed = field(default_factory=Harmed)
    _contents: dict[str, bytearray] = field(default_factory=dict)
    _open: dict[int, str] = field(default_factory=dict)

    def name(self, path: str | os.PathLike[str]) -> str | None:
        """The path relative to the folder; None outside of it and for shared-memory files."""
        text = os.fspath(path)
        start = f"{self.root}{os.sep}"
        if not text.startswith(start) or text.endswith("-shm"):
            return None
        return text[len(start) :]

    def note(self, op: Op) -> None:
        """Remember a call; plain files' contents are followed along."""
        self.log.append(op)
        held = self._contents.setdefault(op.path, bytearray())
        if op.kind == "write":
            if len(held) < op.offset:
                held.extend(bytes(op.offset - len(held)))
            held[op.offset : op.offset + len(op.data)] = op.data
        elif op.kind == "truncate":
            del held[op.offset :]
            held.extend(bytes(op.offset - len(held)))
        elif op.kind in {"create", "unlink"}:
            # Not cleared in place: another name of the same file may still be there.
            self._contents[op.path] = bytearray()
        elif op.kind == "rename":
            self._contents[op.to] = self._contents.pop(op.path)
        elif op.kind == "link":
            self._contents[op.to] = held

    def begin(self) -> None:
        """What lies in the folder now is on the disk for good."""
        self.log.clear()
        self._contents.clear()
        for file in self.root.rglob("*"):
            name = self.name(file)
            if name is not None and file.is_file():
                self._contents[name] = bytearray(file.read_bytes())

    def catch_up(self, name: str) -> None:
        """Note what was written to a file behind our back."""
        path = self.root / name
        found = path.read_bytes() if path.is_file() else b""
        held = self._contents.get(name)
        if held is None:
            if not path.is_file():
                return
            self.note(Op("create", name))
            held = self._contents[name]
        if bytes(held) == found:
            return
        if found.startswith(bytes(held)):
            self.note(Op("write", name, len(held), found[len(held) :]))
            return
        self.note(Op("truncate", name, 0))
        self.note(Op("write", name, 0, found))

    # What `os` is asked to do.

    def opened(self, fd: int, path: str, existed: bool, flags: int) -> None:
        name = self.name(path)
        if name is None:
            return
        self._open[fd] = name
        if not existed:
            self.note(Op("create", name))
        elif flags & os.O_TRUNC:
            self.note(Op("truncate", name, 0))

    def closed(self, fd: int) -> None:
        self._open.pop(fd, None)

    def held(self, fd: int) -> str | None:
        return self._open.get(fd)


def _io_error(how: Harm) -> Exception:
    code = errno.ENOSPC if how == "full" else errno.EIO
    return OSError(code, os.strerror(code))


def _sqlite_error(how: Harm) -> Exception:
    return apsw.FullError("injected") if how == "full" else apsw.IOError("injected")


class _File(apsw.VFSFile):
    def __init__(
        self, base: str, disk: Disk, name: apsw.URIFilename | str | None, flags: list[int]
    ) -> None:
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = disk.name(text) if text else None
        existed = text is not None and Path(text).exists()
        super().__init__(base, name, flags)
        self._disk = disk
        # Not only of new files: the unix VFS syncs the folder at each handle's first sync
        # of a journal that it might have had to make.
        self._syncs_folder = bool(flags[0] & apsw.SQLITE_OPEN_CREATE) and (
            self._name is not None and self._name.endswith(("-wal", "-journal"))
        )
        if self._name is not None and not existed:
            disk.note(Op("create", self._name))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 -- apsw's name
        if self._name is not None:
            self._disk.harm.step(_sqlite_error)
            self._disk.note(Op("write", self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 -- apsw's name
        if self._name is not None:
            self._disk.harm.step(_sqlite_error)
            self._disk.note(Op("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 -- apsw's name
        if self._name is not None:
            self._disk.harm.step(_sqlite_error)
            self._disk.note(Op("sync", self._name))
            if self._syncs_folder:
                self._disk.note(Op("syncdir", str(Path(self._name).parent)))
                self._syncs_folder = False
        if self._disk.syncing:
            super().xSync(flags)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._base = next(name for name in apsw.vfs_names() if name != _VFS_NAME)
        self._disk = disk
        super().__init__(_VFS_NAME, self._base, makedefault=True)

    def xOpen(  # noqa: N802 -- apsw's name
        self, name: apsw.URIFilename | str | None, flags: list[int]
    ) -> apsw.VFSFile:
        return _File(self._base, self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 -- apsw's name
        super().xDelete(filename, syncdir)
        name = self._disk.name(filename)
        if name is not None:
            self._disk.note(Op("unlink", name))
            if syncdir:
                self._disk.note(Op("syncdir", str(Path(name).parent)))


_VFS_NAME: Final = "memoryd-chaos"


@contextmanager
def watched(root: Path, *, syncing: bool = True) -> Iterator[Disk]:
    """Everything below `root` goes through the disk while this is open."""
    disk = Disk(root, syncing)
    vfs = _Vfs(disk)
    real: dict[str, Any] = {name: getattr(os, name) for name in PATCHED}  # Any: os's signatures
    try:
        calls = _Calls(disk, real)
        for name in PATCHED:
            setattr(os, name, getattr(calls, name))
        disk.begin()
        yield disk
    finally:
        for name, call in real.items():
            setattr(os, name, call)
        vfs.unregister()


class _Calls:
    """Stand-ins for functions of `os`, one method each, with their names."""

    def __init__(self, disk: Disk, real: dict[str, Any]) -> None:  # Any: os's signatures
        self._disk = disk
        self._real = real

    def _at(self, path: Any, dir_fd: int | None) -> str:
        folder = self._disk.held(dir_fd) if dir_fd is not None else None
        text = os.fsdecode(path)
        return text if folder is None else str(self._disk.root / folder / text)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        where = self._at(path, dir_fd)
        existed = Path(where).exists()
        if flags & os.O_CREAT and not existed and self._disk.name(where) is not None:
            self._disk.harm.step(_io_error)
        fd: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        self._disk.opened(fd, where, existed, flags)
        return fd

    def close(self, fd: int) -> None:
        self._disk.closed(fd)
        self._real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        name = self._disk.held(fd)
        if name is None:
            return int(self._real["write"](fd, data))
        self._disk.harm.step(_io_error)
        offset = os.fstat(fd).st_size
        wrote = int(self._real["write"](fd, data))
        self._disk.note(Op("write", name, offset, bytes(data[:wrote])))
        return wrote

    def fsync(self, fd: int) -> None:
        disk, name = self._disk, self._disk.held(fd)
        if name is not None:
            disk.harm.step(_io_error)
            if (disk.root / name).is_dir():
                disk.note(Op("syncdir", name))
            else:
                disk.catch_up(name)
                disk.note(Op("sync", name))
        if disk.syncing or name is None:
            self._real["fsync"](fd)

    def ftruncate(self, fd: int, size: int) -> None:
        name = self._disk.held(fd)
        if name is not None:
            self._disk.harm.step(_io_error)
            self._disk.note(Op("truncate", name, size))
        self._real["ftruncate"](fd, size)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._gone("unlink", path, dir_fd)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._gone("rmdir", path, dir_fd)

    def _gone(self, kind: Literal["unlink", "rmdir"], path: Any, dir_fd: int | None) -> None:
        name = self._disk.name(self._at(path, dir_fd))
        if name is not None:
            self._disk.harm.step(_io_error)
        self._real[kind](path, dir_fd=dir_fd)
        if name is not None:
            self._disk.note(Op(kind, name))

    def rename(self, src: Any, dst: Any, **folders: Any) -> None:
        self._renamed("rename", src, dst, folders)

    def replace(self, src: Any, dst: Any, **folders: Any) -> None:
        self._renamed("replace", src, dst, folders)

    def link(self, src: Any, dst: Any, **folders: Any) -> None:
        self._renamed("link", src, dst, folders)

    def _renamed(
        self, how: Literal["rename", "replace", "link"], src: Any, dst: Any, folders: dict[str, Any]
    ) -> None:
        name, to = self._disk.name(os.fspath(src)), self._disk.name(os.fspath(dst))
        if name is not None:
            self._disk.harm.step(_io_error)
            self._disk.catch_up(name)
        self._real[how](src, dst, **folders)
        if name is not None and to is not None:
            self._disk.note(Op("link" if how == "link" else "rename", name, to=to))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = self._disk.name(self._at(path, dir_fd))
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if name is not None:
            self._disk.note(Op("mkdir", name))
