"""``stele dump`` and ``stele verify``: what is in the files, without a broker.

Both only read. On the directory of a running broker ``verify`` may meet a batch
that is just being written at the very end of an active segment; it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from stele.wire import record_batch as rb
from stele.wire.compression import Compression

from .files import Files, RealFiles, read_file
from .offset_index import OffsetIndex
from .partition_files import PartitionFiles
from .scan import CorruptRange, scan_batches
from .segment import LOG_SUFFIX
from .segment_indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from .time_index import TimeIndex

_HEX_WIDTH = 16


def dump(path: Path, *, show_hex: bool, out: TextIO) -> None:
    """Print a ``.log``, ``.index`` or ``.timeindex`` for people, a line for each batch and record.

    Raises:
        ValueError: not a file of a segment.
        OSError: it cannot be read.
    """
    if path.suffix == INDEX_SUFFIX:
        _dump_offset_index(path, out)
    elif path.suffix == TIME_INDEX_SUFFIX:
        _dump_time_index(path, out)
    elif path.suffix == LOG_SUFFIX:
        _dump_log(path, show_hex=show_hex, out=out)
    else:
        raise ValueError(f"{path} is not a file of a segment; give a .log, .index or .timeindex")


def _base_offset(path: Path) -> int:
    try:
        return int(path.stem)
    except ValueError:
        raise ValueError(f"{path.name} does not begin with a base offset of 20 digits") from None


def _dump_log(path: Path, *, show_hex: bool, out: TextIO) -> None:
    out.write(f"Dumping {path}\nLog starting offset: {_base_offset(path)}\n")
    for found in _scan(path):
        if isinstance(found, CorruptRange):
            out.write(
                f"CORRUPT position: {found.position} to {found.end_position} offsets: {found.offset} to "
                f"{found.next_offset - 1}: {found.reason}\n"
            )
        else:
            _dump_batch(path, found, show_hex=show_hex, out=out)


def _dump_batch(path: Path, header: rb.BatchHeader, *, show_hex: bool, out: TextIO) -> None:
    out.write(
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {str(header.is_transactional).lower()} isControl: {str(header.is_control).lower()} "
        f"position: {header.position} "
        f"{'LogAppendTime' if header.is_log_append_time else 'CreateTime'}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} compresscodec: {_codec_name(header.compression)} "
        f"crc: {header.crc} isvalid: true\n"
    )
    raw = _read(path, header.position, header.size)
    try:
        records = rb.decode_records(raw)
    except rb.CorruptBatchError as error:
        out.write(f"| CORRUPT records: {error.reason}\n")
    else:
        for record in records:
            out.write(
                f"| offset: {record.offset} timestamp: {record.timestamp} key: {_text(record.key)} "
                f"value: {_text(record.value)} headers: [{_headers(record)}]\n"
            )
    if show_hex:
        for start in range(0, len(raw), _HEX_WIDTH):
            line = raw[start : start + _HEX_WIDTH]
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
            out.write(f"  {header.position + start:010x}  {line.hex(' '):<47}  {shown}\n")


def _codec_name(codec: int) -> str:
    try:
        return Compression(codec).name.lower()
    except ValueError:
        return f"unknown ({codec})"


def _headers(record: rb.RecordView) -> str:
    return ",".join(f"{name}:{_text(value)}" for name, value in record.headers)


def _text(data: bytes | None) -> str:
    """UTF-8 without control characters as it is, everything else as hex."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _dump_offset_index(path: Path, out: TextIO) -> None:
    index = OffsetIndex.from_bytes(path.read_bytes(), log_bytes=2**32)
    if index is None:
        raise ValueError(f"{path} is damaged: its entries do not ascend; it is rebuilt when it is deleted")
    base_offset = _base_offset(path)
    out.write(f"Dumping {path}\n")
    for relative_offset, position in index.entries():
        out.write(f"offset: {base_offset + relative_offset} position: {position}\n")


def _dump_time_index(path: Path, out: TextIO) -> None:
    index = TimeIndex.from_bytes(path.read_bytes())
    if index is None:
        raise ValueError(f"{path} is damaged: its entries do not ascend; it is rebuilt when it is deleted")
    base_offset = _base_offset(path)
    out.write(f"Dumping {path}\n")
    for timestamp_ms, relative_offset in index.entries():
        out.write(f"timestamp: {timestamp_ms} offset: {base_offset + relative_offset}\n")


class _ReadOnlyFile:
    """Reads for ``scan_batches``; the file may belong to a broker, so it is never opened for writing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        return self._path.stat().st_size

    def read_at(self, position: int, size: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()


def _read(path: Path, position: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(size)


def _scan(
    path: Path, expected_offset: int | None = None, end: int | None = None
) -> Iterator[rb.BatchHeader | CorruptRange]:
    base_offset = _base_offset(path)
    may_have_holes = base_offset < PartitionFiles(RealFiles(), path.parent).read_holes_until()
    file = _ReadOnlyFile(path)
    try:
        yield from scan_batches(
            file,
            expected_offset=base_offset if expected_offset is None else expected_offset,
            end=end,
            may_have_holes=may_have_holes,
        )
    finally:
        file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The state of one partition's files. ``problems`` are sentences with file and byte."""

    directory: Path
    segments: int
    batches: int
    records: int
    size_bytes: int
    problems: list[str]


def verify(data_dir: Path, *, report: Callable[[Verified], None]) -> int:
    """Check every batch and index under ``data_dir``; returns how many problems there are.

    ``report`` is called after each partition, so that long work shows its progress.

    Raises:
        ValueError: there is no partition in ``data_dir``.
    """
    directories = sorted({path.parent for path in data_dir.glob(f"*/*{LOG_SUFFIX}")})
    if not directories and not (data_dir / "start-record").exists():
        raise ValueError(f"{data_dir} is not a data directory: no partition is in it")
    problems = 0
    for directory in directories:
        verified = verify_partition(directory)
        problems += len(verified.problems)
        report(verified)
    return problems


class VerificationStopped(Exception):
    """``should_stop`` said so."""


def verify_partition(
    directory: Path,
    *,
    ends: Mapping[Path, int] | None = None,
    sealed: Container[Path] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Verified:
    """Check every segment of one partition: CRCs, offsets, indexes that point at batches.

    Offsets have no holes except where the log was compacted.

    With ``ends`` those logs are checked, each up to that byte: what is appended meanwhile is left out.
    With ``sealed`` those of them have their indexes on the disk; what is there of others is older.

    Raises:
        VerificationStopped: ``should_stop`` said so.
    """
    logs = sorted(directory.glob(f"*{LOG_SUFFIX}") if ends is None else ends)
    files = RealFiles()
    batches = records = size_bytes = 0
    problems: list[str] = []
    expected: int | None = None
    for log in logs:
        base_offset = _base_offset(log)
        if expected is not None and base_offset != expected:
            problems.append(
                f"{log}: begins at offset {base_offset}, the segment before ends at {expected - 1}"
            )
        expected = base_offset
        end = log.stat().st_size if ends is None else ends[log]
        is_sealed = sealed is None or log in sealed
        indexed, index_problems = _indexed(files, log, end) if is_sealed else ({}, [])
        for found in _scan(log, end=end):
            if should_stop():
                raise VerificationStopped
            if isinstance(found, CorruptRange):
                problems.append(
                    f"{log}: corrupt from byte {found.position} to {found.end_position}: {found.reason}"
                    + (
                        " (the end: torn, or being written)"
                        if ends is None and found.end_position == end
                        else ""
                    )
                )
                expected = found.next_offset
                continue
            if indexed.get(found.position) == found.last_offset - base_offset:
                del indexed[found.position]
            batches, records = batches + 1, records + found.record_count
            expected = found.next_offset
        size_bytes += end
        problems += index_problems
        index_path = log.with_suffix(INDEX_SUFFIX)
        problems += [
            f"{index_path}: offset {base_offset + relative} is not at byte {position} of the log"
            for position, relative in indexed.items()
        ]
    return Verified(
        directory=directory,
        segments=len(logs),
        batches=batches,
        records=records,
        size_bytes=size_bytes,
        problems=problems,
    )


def _indexed(files: Files, log: Path, end: int) -> tuple[dict[int, int], list[str]]:
    """``{position: relative offset}`` of the index before byte ``end`` of ``log``, and what is wrong with both indexes."""
    problems: list[str] = []
    indexed: dict[int, int] = {}
    index_path, time_path = log.with_suffix(INDEX_SUFFIX), log.with_suffix(TIME_INDEX_SUFFIX)
    raw = read_file(files, index_path)
    if raw is not None:
        index = OffsetIndex.from_bytes(raw, log_bytes=max(1, log.stat().st_size))
        if index is None:
            problems.append(f"{index_path}: its entries do not ascend, or point behind the log")
        else:
            # A segment that grew and was sealed meanwhile has entries for what is left out here.
            indexed = {position: relative for relative, position in index.entries() if position < end}
    raw = read_file(files, time_path)
    if raw is not None and TimeIndex.from_bytes(raw) is None:
        problems.append(f"{time_path}: its entries do not ascend")
    return indexed, problems
