"""Read the batches of segments with holes, and write a cleaned segment.

::

    00000000000000001000.log.cleaned         what remains of the segments of one group
    00000000000000001000.index.cleaned       their indexes, as if the log had been appended
    00000000000000001000.timeindex.cleaned   batch by batch
    00000000000000001000.txnindex.cleaned    aborted transactions of which something remains, if any

They count for nothing until ``replacement`` renames them; a start removes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stele.wire import record_batch as rb

from ...errors import CorruptLog
from ..disk.files import File, Files
from ..segments.indexes import SegmentIndexes
from ..segments.offset_index import RELATIVE_OFFSET_MAX
from ..segments.scan import BATCH_BYTES_MAX
from ..segments.segment import LOG_SUFFIX, segment_name
from ..segments.transaction_index import TRANSACTION_INDEX_SUFFIX, AbortedEntry, TransactionIndex
from .planning import LOG_BYTES_MAX

CLEANED_SUFFIX = ".cleaned"

_READ_BYTES = 1024 * 1024
_WRITE_BYTES = 1024 * 1024


def read_batches(
    file: File, *, base_offset: int, start: int = 0, end: int | None = None
) -> Iterator[tuple[bytes, rb.BatchHeader]]:
    """Yield every batch of a log from byte ``start`` to ``end``, its CRC checked.

    Offsets ascend and may have holes.

    ``header.position`` is 0, as in the buffer beside it. One batch is in memory at a
    time beside a window of 1 MiB.

    Raises:
        CorruptLog: at the first bytes that are no batch, or whose offsets are not after those before.
    """
    end = file.size() if end is None else end
    position, next_offset = start, base_offset
    window = b""
    while position < end:
        at = position - start
        try:
            if len(window) - at < rb.HEADER_BYTES:
                window, start, at = file.read_at(position, min(_READ_BYTES, end - position)), position, 0
            header = rb.read_header(window, at)
            if header.size > min(end - position, BATCH_BYTES_MAX):
                raise rb.TruncatedBatchError("the batch is longer than its segment, or than any batch")
            if len(window) - at < header.size:
                size = min(max(_READ_BYTES, header.size), end - position)
                window, start, at = file.read_at(position, size), position, 0
            batch = window[at : at + header.size]
            header = rb.check_batch(batch)
            if header.base_offset < next_offset:
                raise rb.CorruptBatchError(f"base offset is {header.base_offset}, {next_offset} was expected")
        except rb.CorruptBatchError as error:
            raise CorruptLog(
                path=file.path,
                position=position,
                offset=next_offset,
                next_offset=next_offset,
                reason=error.reason,
            ) from error
        yield batch, header
        position += header.size
        next_offset = header.next_offset


class CleanedSegmentTooLarge(Exception):
    """The batches that remain do not fit into one segment file."""


class CleanedSegment:
    """The files ``*.cleaned`` of one group; ``base_offset`` is that of its first segment.

    Every method may raise ``OSError``: ``abandon`` then, unless the disk is lost.
    """

    def __init__(self, files: Files, directory: Path, base_offset: int, *, index_interval_bytes: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = 0
        self._files = files
        log_path = directory / (segment_name(base_offset) + LOG_SUFFIX)
        self._indexes = SegmentIndexes(files, log_path, base_offset, interval_bytes=index_interval_bytes)
        self._path = directory / (log_path.name + CLEANED_SUFFIX)
        self._file = files.open(self._path, create=True)
        self._file.truncate(0)
        self._aborted = TransactionIndex()
        self._transaction_index = log_path.with_suffix(TRANSACTION_INDEX_SUFFIX)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def append(self, batch: bytes, aborted: AbortedEntry | None = None) -> None:
        """Write ``batch``, whose offsets stay as they are, at the end; it is the marker of ``aborted``.

        Raises:
            CleanedSegmentTooLarge: it does not fit; nothing was appended.
        """
        header = rb.read_header(batch)
        if (
            self.size + len(batch) > LOG_BYTES_MAX
            or header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        ):
            raise CleanedSegmentTooLarge(str(self._path))
        self._indexes.note(header, self.size)
        if aborted is not None:
            self._aborted.append(aborted)
        self.size += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._file.write_at(self.size - self._waiting_bytes, self._waiting)
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> None:
        """Write and sync everything; the names last once the directory is synced (``replacement``)."""
        try:
            if self._waiting:
                self._write()
            self._file.sync()
        finally:
            self._file.close()
        contents = self._indexes.contents()
        if self._aborted:
            contents[self._transaction_index.name] = self._aborted.to_bytes()
        for name, content in contents.items():
            file = self._files.open(self.directory / (name + CLEANED_SUFFIX), create=True)
            try:
                file.truncate(0)
                file.write_at(0, [content])
                file.sync()
            finally:
                file.close()

    def abandon(self) -> None:
        """Remove what was written."""
        self._file.close()
        for path in (self._path.with_name(path.name + CLEANED_SUFFIX) for path in self._paths()):
            if self._files.exists(path):
                self._files.remove(path)

    def _paths(self) -> tuple[Path, ...]:
        return (
            self._path.with_suffix(""),
            self._indexes.path,
            self._indexes.time_path,
            self._transaction_index,
        )
