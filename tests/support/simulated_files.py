"""A disk in memory that loses power, tears sectors and fails on request.

``SimulatedFiles`` implements ``app.storage.disk.files.Files``. It knows for each
byte and each name whether a real disk would have it for certain:

- the content of a file is *durable* up to its last ``sync``; what was written
  since is *pending*;
- a name (created, renamed, removed) is durable once its directory was synced.

``power_cut`` makes the disk that may be found after the machine lost power: all
that is durable, and any part of what is pending, down to single sectors of 512
bytes, each in any state it had since the last sync. ``crash`` makes what a
killed process leaves: everything, pending things still pending.

Both leave this object as it is and return another one, so a run may go on in
its own world ("zombie") and be closed in order, while the test looks at the other.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from app.storage.disk.files import Buffer, SyncFailedError

from .simulated_time import LoopThreads

SECTOR_BYTES = 512
# Of the file system. So little is kept back of it that copies of the disk stay cheap.
SPACE_BYTES = 128 * 1024

# Of the file systems of Linux and macOS.
NAME_BYTES_MAX = 255

# Calls that may fail; ``close`` and ``boot_id`` are not among them.
KINDS = (
    "open",
    "create",
    "exists",
    "size",
    "list_dir",
    "make_dir",
    "rename",
    "remove",
    "remove_tree",
    "open_dir",
    "sync_dir",
    "lock",
    "file_size",
    "write",
    "read",
    "truncate",
    "allocate",
    "sync",
)


@dataclass(slots=True)
class _Write:
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        end = self.position + len(self.data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[self.position : end] = self.data

    def sectors(self) -> range:
        return range(
            self.position // SECTOR_BYTES, (self.position + len(self.data) + SECTOR_BYTES - 1) // SECTOR_BYTES
        )


@dataclass(slots=True)
class _Truncate:
    size: int

    def apply(self, content: bytearray) -> None:
        if len(content) > self.size:
            del content[self.size :]
        else:
            content.extend(bytes(self.size - len(content)))


class _Inode:
    """A file. ``content`` is what every process sees."""

    __slots__ = ("content", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.modified_ms = 0
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[_Write | _Truncate] = []

    def change(self, change: _Write | _Truncate) -> None:
        change.apply(self.content)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending = []

    def lose_pending(self) -> None:
        """After a failed sync: the pages count as clean and are never written (fsyncgate)."""
        self.pending = []

    def copy(self) -> _Inode:
        inode = _Inode()
        inode.content = bytearray(self.content)
        inode.durable = bytearray(self.durable)
        inode.pending = list(self.pending)
        inode.modified_ms = self.modified_ms
        return inode

    def after_power_cut(self, random: Random) -> _Inode:
        inode = _Inode()
        inode.content = _surviving_content(self.durable, self.pending, random)
        inode.durable = bytearray(inode.content)
        inode.modified_ms = self.modified_ms
        return inode


def _surviving_content(durable: bytearray, pending: list[_Write | _Truncate], random: Random) -> bytearray:
    """``durable`` with any part of ``pending``: each sector in a state that it had at some time since."""
    fate = random.random()
    if not pending or fate < 0.2:
        return bytearray(durable)
    if fate < 0.4:
        # In order up to some write, which may be torn.
        content = bytearray(durable)
        kept = random.randint(0, len(pending))
        for change in pending[:kept]:
            change.apply(content)
        if kept < len(pending) and isinstance(torn := pending[kept], _Write):
            whole = len(torn.data) // SECTOR_BYTES + 1
            _Write(torn.position, torn.data[: random.randint(0, whole) * SECTOR_BYTES]).apply(content)
        return content
    # Any sector in any of its states; the size in any of its states, or between two of them.
    latest = len(pending)
    state_of: dict[int, int] = {}
    content = bytearray(durable)
    sizes = [len(content)]
    survived: dict[int, bytes] = {}
    for change in pending:
        if isinstance(change, _Write):
            for sector in change.sectors():
                state_of[sector] = 0
    loss = random.choice((0.05, 0.5, 0.95))
    for sector in state_of:
        lost = random.random() < loss
        state_of[sector] = random.choice((0, random.randint(0, latest))) if lost else latest
    for number, change in enumerate(pending, 1):
        change.apply(content)
        sizes.append(len(content))
        if isinstance(change, _Write):
            for sector in change.sectors():
                if state_of[sector] >= number:
                    at = sector * SECTOR_BYTES
                    survived[sector] = bytes(content[at : at + SECTOR_BYTES])
    size = random.choice((sizes[0], sizes[-1], sizes[-1], random.choice(sizes)))
    if random.random() < 0.2:
        size = random.randint(min(sizes), max(sizes))
    result = bytearray(durable[:size])
    # Space that was given to the file and never written: zeros, or what another file left there.
    missing = size - len(result)
    result.extend(random.randbytes(missing) if random.random() < 0.3 else bytes(missing))
    for sector, data in survived.items():
        at = sector * SECTOR_BYTES
        if at < size:
            data = data[: size - at]
            result[at : at + len(data)] = data
    return result


@dataclass(slots=True)
class _Link:
    """A change of one directory: ``name`` appears as ``node``; ``source`` disappears if it was a rename."""

    name: str
    node: _Node | None
    source: str | None = None

    def apply(self, entries: dict[str, _Node]) -> None:
        if self.source is not None:
            entries.pop(self.source, None)
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


class _Directory:
    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_Link] = []

    def change(self, change: _Link) -> None:
        if len(change.name.encode()) > NAME_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), change.name)
        change.apply(self.entries)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending = []

    def copy(self, copies: dict[int, _Node]) -> _Directory:
        directory = _Directory()

        def copied(node: _Node) -> _Node:
            if id(node) not in copies:
                copies[id(node)] = node.copy() if isinstance(node, _Inode) else node.copy(copies)
            return copies[id(node)]

        directory.entries = {name: copied(node) for name, node in self.entries.items()}
        directory.durable = {name: copied(node) for name, node in self.durable.items()}
        directory.pending = [
            _Link(change.name, change.node and copied(change.node), change.source) for change in self.pending
        ]
        return directory

    def after_power_cut(self, random: Random) -> _Directory:
        entries = dict(self.durable)
        fate = random.random()
        if fate < 0.25:
            kept: list[_Link] = []
        elif fate < 0.65:
            # What a journal gives: the changes of a directory in their order, up to some point.
            kept = self.pending[: random.randint(0, len(self.pending))]
        else:
            kept = [change for change in self.pending if random.random() < 0.5]
        for change in kept:
            change.apply(entries)
        directory = _Directory()
        directory.entries = {name: node.after_power_cut(random) for name, node in entries.items()}
        directory.durable = dict(directory.entries)
        return directory


_Node = _Inode | _Directory


@dataclass(slots=True, kw_only=True)
class Fault:
    """From the ``call``-th call of ``kinds`` on (1 is the next), ``times`` of them fail with ``errno``.

    A failing write puts ``written`` of its bytes into the file first.
    """

    errno: int
    call: int = 1
    kinds: Sequence[str] = KINDS
    times: int = 1
    written: int = 0
    hits: int = field(default=0, init=False)
    # The kinds of the calls that failed.
    struck: list[str] = field(default_factory=list[str], init=False)


class SimulatedFile:
    def __init__(self, files: SimulatedFiles, path: Path, inode: _Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        files.handles.add(self)

    @property
    def path(self) -> Path:
        return self._path

    def _check_open(self) -> None:
        if self not in self._files.handles:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))

    def size(self) -> int:
        self._check_open()
        self._files.called("file_size", self._path)
        return len(self._inode.content)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._check_open()
        data = b"".join(buffers)
        self._files.write(self._path, self._inode, position, data)

    def read_at(self, position: int, size: int) -> bytes:
        self._check_open()
        self._files.called("read", self._path)
        data = bytes(self._inode.content[position : position + size])
        self._files.bytes_read[self._path] += len(data)
        return data

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        if self._files.is_cold():
            return None
        data = self.read_at(position, size)
        return data if len(data) == size else None

    def truncate(self, size: int) -> None:
        self._check_open()
        self._files.called("truncate", self._path)
        self._inode.change(_Truncate(size))
        self._inode.modified_ms = self._files.now_ms()

    def allocate(self, start: int, end: int) -> None:
        self._check_open()
        self._files.called("allocate", self._path)
        if end > len(self._inode.content):
            self._inode.change(_Truncate(end))

    def sync(self) -> None:
        self._check_open()
        self._files.sync(self._path, self._inode)

    def close(self) -> None:
        self._files.handles.discard(self)


class SimulatedDirectory:
    def __init__(self, files: SimulatedFiles, path: Path) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        self._files.sync_opened_dir(self._path)

    def close(self) -> None:
        pass


class SimulatedLock:
    def __init__(self, locks: set[Path], path: Path) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class SimulatedManySyncs:
    """Syncs one after the other, so that the power can be cut, and a sync fail, between any two."""

    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files

    def begin(self) -> None:
        """Do nothing: a power cut finds the least on the disk."""

    def sync(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._files.sync_path(path)

    def close(self) -> None:
        pass


class SimulatedFiles:
    """The simulated disk (see the module). Paths are absolute; the root exists."""

    def __init__(self) -> None:
        self._root = _Directory()
        self._boot = 1
        self._locks: set[Path] = set()
        self._faults: list[Fault] = []
        self._alarm: tuple[int, Callable[[], None]] | None = None
        self.handles: set[SimulatedFile] = set()
        self.calls = 0
        self.counts: Counter[str] = Counter()
        self.bytes_read: Counter[Path] = Counter()
        self._writing: tuple[_Inode, _Write] | None = None
        # Dates the changes of files, in ms since the epoch.
        self.now_ms: Callable[[], int] = lambda: 0
        # True: the bytes are not in memory, and a disk must be waited for.
        self.is_cold: Callable[[], bool] = lambda: False
        # True: this sync does nothing, as if the code under test had forgotten it.
        self.forgets: Callable[[str, Path], bool] = lambda _kind, _path: False

    def threads(self, count: int) -> LoopThreads:
        return LoopThreads()

    # ── for tests ──

    def alarm(self, after_calls: int, action: Callable[[], None]) -> None:
        """Call ``action`` once, in the middle of the ``after_calls``-th call from now, before its effect."""
        self._alarm = (self.calls + after_calls, action)

    def fail(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        self._faults.clear()

    def power_cut(self, random: Random) -> SimulatedFiles:
        """Return a possible disk after a power cut; the current write may be there in part."""
        if self._writing is None:
            return self._successor(self._root.after_power_cut(random), boot=self._boot + 1)
        inode, write = self._writing
        inode.pending.append(write)
        try:
            return self._successor(self._root.after_power_cut(random), boot=self._boot + 1)
        finally:
            inode.pending.pop()

    def crash(self, random: Random) -> SimulatedFiles:
        """Return the disk as a killed process leaves it; the current write may be there in part."""
        copies: dict[int, _Node] = {}
        root = self._root.copy(copies)
        if self._writing is not None:
            inode, write = self._writing
            copy = copies.get(id(inode))
            if isinstance(copy, _Inode):
                copy.change(_Write(write.position, write.data[: random.randint(0, len(write.data))]))
        return self._successor(root, boot=self._boot)

    def _successor(self, root: _Directory, *, boot: int) -> SimulatedFiles:
        files = type(self)()
        files._root = root
        files._boot = boot
        files.is_cold = self.is_cold
        files.forgets = self.forgets
        files.now_ms = self.now_ms
        return files

    def content(self, path: Path) -> bytearray:
        """Return the bytes of a file, which a test may read, or change durably as a bad disk would."""
        return self._inode(path).content

    def damage(self, path: Path, content: bytes) -> None:
        """Replace the bytes of a file without any call of the code under test."""
        inode = self._inode(path)
        inode.content[:] = content
        inode.durable[:] = content
        inode.pending = []

    def paths(self) -> list[Path]:
        """Return the paths of all files."""
        paths: list[Path] = []

        def walk(path: Path, directory: _Directory) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, _Inode):
                    paths.append(path / name)
                else:
                    walk(path / name, node)

        walk(Path("/"), self._root)
        return sorted(paths)

    def create_file(self, path: Path, content: bytes) -> None:
        """Create a file as another process would, durably."""
        inode = _Inode()
        self._directory(path.parent).change(_Link(path.name, inode))
        self._directory(path.parent).sync()
        self.damage(path, content)

    def unlink(self, path: Path) -> None:
        """Delete a file as another process would, durably."""
        self._inode(path)
        self._directory(path.parent).change(_Link(path.name, None))
        self._directory(path.parent).sync()

    # ── every call ──

    def called(self, kind: str, path: Path) -> None:
        """Count a call; ring the alarm, or raise the fault, that is due at it."""
        self.calls += 1
        self.counts[kind] += 1
        if self._alarm is not None and self.calls >= self._alarm[0]:
            action, self._alarm = self._alarm[1], None
            action()
        for fault in self._faults:
            if kind in fault.kinds:
                fault.call -= 1
                if fault.call <= 0 and fault.hits < fault.times:
                    fault.hits += 1
                    fault.struck.append(kind)
                    if self._writing is not None and fault.written:
                        inode, write = self._writing
                        inode.change(_Write(write.position, write.data[: fault.written]))
                    raise OSError(fault.errno, os.strerror(fault.errno), str(path))

    def write(self, path: Path, inode: _Inode, position: int, data: bytes) -> None:
        write = _Write(position, data)
        self._writing = (inode, write)
        try:
            self.called("write", path)
        finally:
            self._writing = None
        inode.change(write)
        inode.modified_ms = self.now_ms()

    def sync(self, path: Path, inode: _Inode) -> None:
        try:
            self.called("sync", path)
        except OSError as error:
            inode.lose_pending()
            raise SyncFailedError(error.errno, error.strerror, str(path)) from error
        if not self.forgets("sync", path):
            inode.sync()

    def sync_path(self, path: Path) -> None:
        """Sync a file or a directory."""
        node = self._node(path)
        if isinstance(node, _Directory):
            self.sync_dir(path)
        else:
            self.sync(path, self._inode(path))

    def _node(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in path.parts[1:]:
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return node

    def _inode(self, path: Path) -> _Inode:
        node = self._node(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if not isinstance(node, _Inode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return node

    # ── the protocol ──

    def open(self, path: Path, *, create: bool = False) -> SimulatedFile:
        is_new = create and self._node(path) is None
        self.called("create" if is_new else "open", path)
        if is_new:
            self._directory(path.parent).change(_Link(path.name, _Inode()))
        return SimulatedFile(self, path, self._inode(path))

    def exists(self, path: Path) -> bool:
        self.called("exists", path)
        return self._node(path) is not None

    def size(self, path: Path) -> int:
        self.called("size", path)
        return len(self._inode(path).content)

    def modified_ms(self, path: Path) -> int:
        self.called("modified", path)
        return self._inode(path).modified_ms

    def list_dir(self, path: Path) -> list[str]:
        self.called("list_dir", path)
        return sorted(self._directory(path).entries)

    def make_dir(self, path: Path) -> None:
        self.called("make_dir", path)
        if self._node(path) is None:
            self._directory(path.parent).change(_Link(path.name, _Directory()))
        else:
            self._directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.called("rename", source)
        assert source.parent == target.parent, "a move between directories is not one durable step"
        node = self._node(source)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        replaced = self._node(target)
        if isinstance(replaced, _Directory) and replaced.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        self._directory(source.parent).change(_Link(target.name, node, source.name))

    def remove(self, path: Path) -> None:
        self.called("remove", path)
        self._inode(path)
        self._directory(path.parent).change(_Link(path.name, None))

    def remove_tree(self, path: Path) -> None:
        self.called("remove_tree", path)
        directory = self._directory(path)
        for name, node in list(directory.entries.items()):
            assert isinstance(node, _Inode), "partitions hold no directories"
            directory.change(_Link(name, None))
        self._directory(path.parent).change(_Link(path.name, None))

    def open_dir(self, path: Path) -> SimulatedDirectory:
        self.called("open_dir", path)
        self._directory(path)
        return SimulatedDirectory(self, path)

    def space(self, path: Path) -> tuple[int, int]:
        self.called("space", path)
        return SPACE_BYTES, SPACE_BYTES

    def make_private(self, root: Path) -> None:
        self.called("make_private", root)

    def sync_dir(self, path: Path) -> None:
        self.open_dir(path).sync()

    def sync_opened_dir(self, path: Path) -> None:
        directory = self._directory(path)
        try:
            self.called("sync_dir", path)
        except OSError as error:
            raise SyncFailedError(error.errno, error.strerror, str(path)) from error
        if not self.forgets("sync_dir", path):
            directory.sync()

    def many_syncs(self, root: Path) -> SimulatedManySyncs:
        self._directory(root)
        return SimulatedManySyncs(self)

    def lock(self, path: Path) -> SimulatedLock:
        self.called("lock", path)
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
        if self._node(path) is None:
            self._directory(path.parent).change(_Link(path.name, _Inode()))
        self._locks.add(path)
        return SimulatedLock(self._locks, path)

    def boot_id(self) -> str:
        return f"boot-{self._boot}"
