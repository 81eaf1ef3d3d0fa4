"""The key index of a sealed segment: which offset is the last of each key in it.

::

    header   56 bytes   see ``_HEADER``
    entries  24 bytes   hash of the key (BLAKE2b-128, salted), last offset of the key

Entries are sorted by hash, and hashes are spread evenly, so a key is found by
interpolation: mostly one read of 6 KiB, whatever the size of the file. All key indexes
of a partition have the same salt, so they can be merged without reading a record.

The log is the truth. An index counts only if its header fits the segment and its CRC
is right, which is checked once per run before it is used. It is built only from a log
that is synced, and built again if it does not count. ``docs/formats/segment.md`` has
the layout.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import crc32c

from ..disk.files import File, Files
from ..disk.pace import Pacing

SALT_BYTES = 16
HASH_BYTES = 16
ENTRY_BYTES = 24

# Magic, version, two bytes of nothing, salt, bytes of the log, next offset of the segment, number of entries,
# CRC-32C of the entries, CRC-32C of the header up to here.
_HEADER = Struct(">4sH2x16sQQQII")
_HEADER_CRC_START = _HEADER.size - 4
_MAGIC, _VERSION = b"SKEY", 1
_ENTRY = Struct(">16sQ")
# Entries that are read at once: in half of all look-ups they have the one that is looked for.
_WINDOW = 256
_CHUNK_BYTES = ENTRY_BYTES * 8192


class KeyHasher:
    """Hashes keys with a secret salt, so that producers cannot make keys collide."""

    __slots__ = ("_empty", "salt")

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self._empty = blake2b(digest_size=HASH_BYTES, salt=salt)

    def hash_of(self, key: bytes) -> bytes:
        state = self._empty.copy()
        state.update(key)
        return state.digest()


HEADER_BYTES = _HEADER.size


class IndexHeader(NamedTuple):
    """The header of a key index.

    ``log_bytes`` and ``next_offset`` are those of the records that it is about.
    """

    salt: bytes
    log_bytes: int
    next_offset: int
    entry_count: int
    entries_crc: int


def header_of(raw: bytes) -> IndexHeader | None:
    """Return the header of a key index from its first ``HEADER_BYTES``; None if it is damaged."""
    fields = _fields(raw)
    return None if fields is None else IndexHeader(*fields)


class SortedEntries:
    """Entries in memory, sorted by hash."""

    def __init__(self, entries: bytes) -> None:
        self._entries = entries
        self.count = len(entries) // ENTRY_BYTES

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` entries from number ``start`` on; fewer at the end."""
        return self._entries[start * ENTRY_BYTES : (start + count) * ENTRY_BYTES]


class KeyIndex:
    """The key index of one segment, open for reading; for one thread at a time."""

    def __init__(self, file: File, *, salt: bytes, count: int) -> None:
        self._file = file
        self.salt = salt
        self.count = count

    def close(self) -> None:
        self._file.close()

    def read(self, start: int, count: int) -> bytes:
        """Return ``count`` entries from number ``start`` on; fewer at the end."""
        return self._file.read_at(_HEADER.size + start * ENTRY_BYTES, count * ENTRY_BYTES)

    def find(self, wanted: bytes) -> int:
        """Return the last offset of the key with the hash ``wanted``; -1 if the segment has none."""
        steps = search(self.count, wanted)
        place = next(steps)
        while True:
            try:
                place = steps.send(self.read(*place))
            except StopIteration as found:
                return found.value


def search(count: int, wanted: bytes) -> Generator[tuple[int, int], bytes, int]:
    """Look for a hash among ``count`` entries: yield (number, how many) to read, and receive their bytes.

    Returns the last offset of its key, -1 if there is none.
    """
    low, high = 0, count
    low_hash, high_hash, number = 0, 1 << 64, int.from_bytes(wanted[:8])
    while high - low > _WINDOW:
        share = (number - low_hash) / max(1, high_hash - low_hash)
        guess = low + int((high - low) * min(max(share, 0.0), 1.0)) - _WINDOW // 2
        guess = max(low, min(guess, high - _WINDOW))
        window = yield guess, _WINDOW
        first, last = window[:HASH_BYTES], window[-ENTRY_BYTES:-8]
        if wanted < first:
            high, high_hash = guess, int.from_bytes(first[:8])
        elif wanted > last:
            low, low_hash = guess + _WINDOW, int.from_bytes(last[:8])
        else:
            return _find_in(window, wanted)
    return _find_in((yield low, high - low), wanted)


def _find_in(window: bytes, wanted: bytes) -> int:
    low, high = 0, len(window) // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        found, offset = _ENTRY.unpack_from(window, middle * ENTRY_BYTES)
        if found == wanted:
            return offset
        if found < wanted:
            low = middle + 1
        else:
            high = middle
    return -1


def salt_of(files: Files, path: Path) -> bytes | None:
    """Return the salt in the header of a key index; None if there is no such header."""
    file = _open(files, path)
    if file is None:
        return None
    try:
        fields = _fields(file.read_at(0, _HEADER.size))
    finally:
        file.close()
    return None if fields is None else fields[0]


def _open(files: Files, path: Path) -> File | None:
    if not files.exists(path):
        return None
    try:
        return files.open(path)
    except FileNotFoundError:
        # Compaction has just retired it with its segment.
        return None


def _fields(header: bytes) -> tuple[bytes, int, int, int, int] | None:
    """Return salt, log bytes, next offset, count and CRC of the entries; None if the header is no good."""
    if len(header) != _HEADER.size:
        return None
    magic, version, salt, log_bytes, next_offset, count, entries_crc, header_crc = _HEADER.unpack(header)
    if magic != _MAGIC or version != _VERSION or crc32c.crc32c(header[:_HEADER_CRC_START]) != header_crc:
        return None
    return salt, log_bytes, next_offset, count, entries_crc


def open_key_index(
    files: Files,
    path: Path,
    *,
    log_bytes: int,
    next_offset: int,
    salt: bytes | None,
    pace: Pacing,
    is_checked: bool = False,
) -> KeyIndex | None:
    """Open the index of a segment with these bounds; None if there is none that counts.

    ``salt`` None accepts any. ``is_checked``: its CRC was right before, in this run.

    Raises:
        OSError: it cannot be read.
    """
    file = _open(files, path)
    if file is None:
        return None
    index: KeyIndex | None = None
    try:
        fields = _fields(file.read_at(0, _HEADER.size))
        if fields is not None:
            found_salt, found_bytes, found_next, count, crc = fields
            fits = (found_bytes, found_next) == (log_bytes, next_offset) and salt in (None, found_salt)
            if fits and (is_checked or _crc_of(file, count, pace) == crc):
                index = KeyIndex(file, salt=found_salt, count=count)
    finally:
        if index is None:
            file.close()
    return index


def _crc_of(file: File, count: int, pace: Pacing) -> int:
    """The CRC of the entries; -1 if the file has fewer."""
    size = file.size()
    if size != _HEADER.size + count * ENTRY_BYTES:
        return -1
    crc, position = 0, _HEADER.size
    while position < size:
        data = file.read_at(position, min(_CHUNK_BYTES, size - position))
        crc = crc32c.crc32c(data, crc)
        position += len(data)
        pace(len(data))
    return crc


def write_key_index(
    files: Files,
    path: Path,
    entries: Iterable[bytes],
    *,
    salt: bytes,
    log_bytes: int,
    next_offset: int,
    pace: Pacing,
) -> None:
    """Replace the index by ``entries``.

    They are blocks of whole entries in the order of their hashes.

    Nothing is synced: after a crash, the CRC tells whether all of it is there.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        position, crc = _HEADER.size, 0
        for block in entries:
            file.write_at(position, [block])
            position += len(block)
            crc = crc32c.crc32c(block, crc)
            pace(len(block))
        count = (position - _HEADER.size) // ENTRY_BYTES
        file.write_at(0, [_packed(salt, log_bytes, next_offset, count, crc)])
    except BaseException:
        file.close()
        with suppress(OSError):
            files.remove(temporary)
        raise
    file.close()
    files.rename(temporary, path)


def _packed(salt: bytes, log_bytes: int, next_offset: int, count: int, entries_crc: int) -> bytes:
    header = _HEADER.pack(_MAGIC, _VERSION, salt, log_bytes, next_offset, count, entries_crc, 0)
    return header[:_HEADER_CRC_START] + crc32c.crc32c(header[:_HEADER_CRC_START]).to_bytes(4)


def key_index_bytes(entries: bytes, *, salt: bytes, log_bytes: int, next_offset: int) -> bytes:
    """Return a whole key index of ``entries`` in the order of their hashes."""
    crc = crc32c.crc32c(entries)
    return _packed(salt, log_bytes, next_offset, len(entries) // ENTRY_BYTES, crc) + entries


def check_key_index(raw: bytes) -> str | None:
    """Return what is wrong with a key index, None if nothing is; for ``stele verify`` and ``stele dump``."""
    fields = _fields(raw[: _HEADER.size])
    if fields is None:
        return "its header is damaged"
    entries = raw[_HEADER.size :]
    if len(entries) != fields[3] * ENTRY_BYTES or crc32c.crc32c(entries) != fields[4]:
        return "its entries do not pass their CRC"
    previous = b""
    for at in range(0, len(entries), ENTRY_BYTES):
        if entries[at : at + HASH_BYTES] <= previous:
            return "its entries do not ascend"
        previous = entries[at : at + HASH_BYTES]
    return None


def entries_of(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield hash and last offset of each entry of a key index that was checked."""
    yield from _ENTRY.iter_unpack(raw[_HEADER.size :])


def bounds_of(raw: bytes) -> tuple[int, int, int]:
    """Return log bytes, next offset and entry count of a checked key index."""
    fields = _fields(raw[: _HEADER.size])
    assert fields is not None
    return fields[1], fields[2], fields[3]
