"""Sealed segments whose log is in a bucket alone: what stays on the disk of them.

``remote-segments`` in the directory of a partition has one JSON line for each. Their indexes stay as files, so they are
searched like all others; only the bytes of the log come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ..disk.files import File, Files
from ..disk.whole_files import read_file, write_file
from ..setup_problems import InvalidStorage

REMOTE_SEGMENTS = "remote-segments"
_VERSION = b"0\n"


class RunSpan(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of an object that are adjacent bytes of a segment.

    The first batch in them has ``base_offset``. ``crc`` is their CRC-32C.
    """

    object: str
    position: int
    length: int
    crc: int
    base_offset: int


class RemoteSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment whose log is in the ``runs``. Times are in ms.

    ``newest_ms`` and ``has_untimed`` are the times of its records (``RecordAge``).
    """

    base_offset: int
    next_offset: int
    created_ms: int
    appended_ms: int
    newest_ms: int
    has_untimed: bool
    runs: tuple[RunSpan, ...]

    @property
    def size(self) -> int:
        return sum(run.length for run in self.runs)


class RemoteLogs(Protocol):
    """Opens logs that are in a bucket."""

    def open(self, path: Path, segment: RemoteSegment) -> File:
        """Return the log; ``path`` is where its file was. Its reads raise ``StorageUnavailable``."""
        ...


class RemoteLog(NamedTuple):
    """A segment's log that is in a bucket alone: what is known of it, and how it is read."""

    known: RemoteSegment
    file: File


_decoder = msgspec.json.Decoder(RemoteSegment)


def read_remote_segments(files: Files, directory: Path) -> list[RemoteSegment]:
    """Return the segments that are listed, ascending; none if there is no list.

    Raises:
        InvalidStorage: it is damaged. Without it their records would be lost: the next cut would not name them.
    """
    raw = read_file(files, directory / REMOTE_SEGMENTS)
    if raw is None:
        return []
    try:
        if not raw.startswith(_VERSION):
            raise ValueError("its version is not known")
        return [_decoder.decode(line) for line in raw.removeprefix(_VERSION).splitlines()]
    except ValueError as error:
        raise InvalidStorage(
            f"{directory / REMOTE_SEGMENTS} is damaged ({error}): it says where records are in the bucket. Put the file "
            "back from a backup, or restore the data directory with stele restore"
        ) from error


def write_remote_segments(files: Files, directory: Path, segments: Sequence[RemoteSegment]) -> None:
    """Replace the list, and make that last."""
    lines = b"".join(msgspec.json.encode(segment) + b"\n" for segment in segments)
    write_file(files, directory / REMOTE_SEGMENTS, _VERSION + lines)
