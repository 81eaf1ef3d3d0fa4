"""``stele dump`` and ``stele verify``: inspect files without a broker.

Both only read. In the directory of a running broker, ``verify`` may find a batch
that is being written at the end of an active segment; the problem says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.control_record import read_marker

from ..config_types import INT64_MAX
from ..disk.files import Files, RealFiles
from ..disk.whole_files import read_file
from ..keys.key_index import bounds_of, check_key_index, entries_of
from ..segments.indexes import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ..segments.offset_index import OffsetIndex
from ..segments.partition_files import PartitionFiles
from ..segments.scan import CorruptRange, scan_batches
from ..segments.segment import KEY_INDEX_SUFFIX, LOG_SUFFIX
from ..segments.time_index import TimeIndex
from ..segments.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex
from .transaction_check import TransactionCheck

_HEX_WIDTH = 16


# Prints an entry of a file: its kind, and its fields by the names of Kafka's tool.
_Print = Callable[[str, dict[str, Any]], None]

# Lines of text; those of all other kinds are fields with their names.
_TEMPLATES = {
    "file": "Dumping {path}",
    "start": "Log starting offset: {offset}",
    "space": "SPACE position: {position} to {endPosition}: no records yet",
    "corrupt": "CORRUPT position: {position} to {endPosition} offsets: {offset} to {lastOffset}: {reason}",
    "corrupt records": "| CORRUPT records: {reason}",
    "bytes": "  {position:010x}  {hex:<47}  {text}",
}


def _text_printer(out: TextIO) -> _Print:
    def print_entry(kind: str, fields: dict[str, Any]) -> None:
        if kind in _TEMPLATES:
            line = _TEMPLATES[kind].format(**fields)
        else:
            prefix = "| " if kind == "record" else ""
            line = prefix + " ".join(f"{name}: {_shown(value)}" for name, value in fields.items())
        out.write(line + "\n")

    return print_entry


def _json_printer(out: TextIO) -> _Print:
    def print_entry(kind: str, fields: dict[str, Any]) -> None:
        out.write(json.dumps({"kind": kind, **fields}, ensure_ascii=False) + "\n")

    return print_entry


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list):
        headers = cast("list[tuple[str, str | None]]", value)
        return f"[{','.join(f'{name}:{_shown(text)}' for name, text in headers)}]"
    return str(value)


def dump(path: Path, *, show_hex: bool, out: TextIO, as_json: bool = False) -> None:
    """Print a ``.log`` file or an index, one line per batch, record or entry.

    With ``as_json`` each line is an object with the ``kind`` of the entry and its fields.

    Raises:
        ValueError: ``path`` is not a file of a segment.
        OSError: it cannot be read.
    """
    entry = _json_printer(out) if as_json else _text_printer(out)
    if path.suffix == INDEX_SUFFIX:
        _dump_offset_index(path, entry)
    elif path.suffix == TIME_INDEX_SUFFIX:
        _dump_time_index(path, entry)
    elif path.suffix == KEY_INDEX_SUFFIX:
        _dump_key_index(path, entry)
    elif path.suffix == TRANSACTION_INDEX_SUFFIX:
        _dump_transaction_index(path, entry)
    elif path.suffix == LOG_SUFFIX:
        _dump_log(path, show_hex=show_hex, entry=entry)
    else:
        raise ValueError(
            f"{path} is not a file of a segment; give a .log, .index, .timeindex, .txnindex or .keyindex"
        )


def _base_offset(path: Path) -> int:
    try:
        return int(path.stem)
    except ValueError:
        raise ValueError(f"{path.name} does not begin with a base offset of 20 digits") from None


def _dump_log(path: Path, *, show_hex: bool, entry: _Print) -> None:
    start = _base_offset(path)
    entry("file", {"path": str(path)})
    entry("start", {"offset": start})
    for scanned in _scan(path):
        if isinstance(scanned, CorruptRange):
            place = {"position": scanned.position, "endPosition": scanned.end_position}
            if scanned.is_blank:
                entry("space", place)
            else:
                lost = {"offset": scanned.offset, "lastOffset": scanned.next_offset - 1}
                entry("corrupt", {**place, **lost, "reason": scanned.reason})
        else:
            _dump_batch(path, scanned, show_hex=show_hex, entry=entry)


def _dump_batch(path: Path, header: rb.BatchHeader, *, show_hex: bool, entry: _Print) -> None:
    entry(
        "batch",
        {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.partition_leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "position": header.position,
            "LogAppendTime" if header.is_log_append_time else "CreateTime": header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "compresscodec": _codec_name(header.compression),
            "crc": header.crc,
            "isvalid": True,
        },
    )
    raw = _read(path, header.position, header.size)
    try:
        records = rb.decode_records(raw)
    except rb.CorruptBatchError as error:
        entry("corrupt records", {"reason": error.reason})
    else:
        if header.is_control:
            _dump_marker(raw, entry)
            records = ()
        for record in records:
            entry(
                "record",
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [(name, _text(value)) for name, value in record.headers],
                },
            )
    if show_hex:
        for start in range(0, len(raw), _HEX_WIDTH):
            line = raw[start : start + _HEX_WIDTH]
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
            entry("bytes", {"position": header.position + start, "hex": line.hex(" "), "text": shown})


def _dump_marker(raw: bytes, entry: _Print) -> None:
    """Print what a control batch says, with the names of Kafka's tool."""
    header = rb.read_header(raw)
    try:
        marker = read_marker(raw, header)
    except rb.CorruptBatchError as error:
        entry("corrupt records", {"reason": error.reason})
        return
    fields: dict[str, Any] = {"offset": header.base_offset, "timestamp": header.max_timestamp}
    if marker is None:
        fields["controlRecord"] = "of another type"
    else:
        fields |= {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}
    entry("record", fields)


def _codec_name(codec: int) -> str:
    try:
        return Compression(codec).name.lower()
    except ValueError:
        return f"unknown ({codec})"


def _text(data: bytes | None) -> str | None:
    """Return printable UTF-8 unchanged, and anything else as hex."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _dump_offset_index(path: Path, entry: _Print) -> None:
    index = OffsetIndex.from_bytes(path.read_bytes(), log_bytes=2**32)
    if index is None:
        raise ValueError(
            f"{path} is corrupt: its entries do not ascend; stop the broker and delete the file, which the next start rebuilds"
        )
    base_offset = _base_offset(path)
    entry("file", {"path": str(path)})
    for relative_offset, position in index.entries():
        entry("entry", {"offset": base_offset + relative_offset, "position": position})


def _dump_time_index(path: Path, entry: _Print) -> None:
    index = TimeIndex.from_bytes(path.read_bytes())
    if index is None:
        raise ValueError(
            f"{path} is corrupt: its entries do not ascend; stop the broker and delete the file, which the next start rebuilds"
        )
    base_offset = _base_offset(path)
    entry("file", {"path": str(path)})
    for timestamp_ms, relative_offset in index.entries():
        entry("entry", {"timestamp": timestamp_ms, "offset": base_offset + relative_offset})


def _dump_transaction_index(path: Path, entry: _Print) -> None:
    base_offset = _base_offset(path)
    index = TransactionIndex.from_bytes(path.read_bytes(), base_offset=base_offset, next_offset=INT64_MAX)
    if index is None:
        raise ValueError(
            f"{path} is corrupt: its entries do not fit a segment that begins at offset {base_offset}; stop the "
            "broker and delete the .index file of the segment, and the next start rebuilds all its indexes"
        )
    entry("file", {"path": str(path)})
    for aborted in index.entries():
        entry(
            "entry",
            {
                "producerId": aborted.producer_id,
                "firstOffset": aborted.first_offset,
                "lastOffset": aborted.last_offset,
                "lastStableOffset": aborted.last_stable_offset,
            },
        )


def _dump_key_index(path: Path, entry: _Print) -> None:
    raw = path.read_bytes()
    problem = check_key_index(raw)
    if problem is not None:
        raise ValueError(f"{path} is damaged: {problem}; it is built again when it is needed")
    log_bytes, next_offset, count = bounds_of(raw)
    entry("file", {"path": str(path)})
    entry("bounds", {"logBytes": log_bytes, "nextOffset": next_offset, "keys": count})
    for hashed, offset in entries_of(raw):
        entry("entry", {"hash": hashed.hex(), "offset": offset})


class _ReadOnlyFile:
    """A file for ``scan_batches``, read-only because a broker may be using it."""

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
    """The state of one partition's files.

    ``problems`` are sentences with file and byte.
    """

    directory: Path
    segments: int
    batches: int
    records: int
    size_bytes: int
    problems: list[str]


def verify(data_dir: Path, *, report: Callable[[Verified], None]) -> int:
    """Check every batch and index under ``data_dir``; return the number of problems.

    ``report`` is called after each partition, to show the progress of a long check.

    Raises:
        ValueError: there is no partition in ``data_dir``.
    """
    directories = sorted({path.parent for path in data_dir.glob(f"*/*{LOG_SUFFIX}")})
    if not directories and not (data_dir / "start-record").exists():
        raise ValueError(f"{data_dir} is not a data directory: it contains no partition")
    problems = 0
    for directory in directories:
        verified = verify_partition(directory)
        problems += len(verified.problems)
        report(verified)
    return problems


class VerificationStopped(Exception):
    """``should_stop`` returned True."""


def verify_partition(
    directory: Path,
    *,
    ends: Mapping[Path, int] | None = None,
    sealed: Container[Path] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Verified:
    """Check every segment of one partition: CRCs, offsets, index entries, and aborted transactions.

    Offsets must have no holes, except where the log was compacted. With ``ends`` only those logs
    are checked, each up to that byte, so that records appended meanwhile are left out. With
    ``sealed`` only the indexes of those logs are checked, because those of others are out of date.

    Raises:
        VerificationStopped: ``should_stop`` returned True.
    """
    logs = sorted(directory.glob(f"*{LOG_SUFFIX}") if ends is None else ends)
    check = _PartitionCheck(may_be_written=ends is None, should_stop=should_stop)
    for log in logs:
        check.add(
            log,
            end=log.stat().st_size if ends is None else ends[log],
            is_sealed=sealed is None or log in sealed,
            is_last=log == logs[-1],
        )
    return Verified(
        directory=directory,
        segments=len(logs),
        batches=check.batches,
        records=check.records,
        size_bytes=check.size_bytes,
        problems=check.problems,
    )


class _PartitionCheck:
    """Checks the segments of one partition in their order, and counts.

    ``may_be_written``: a broker may append to the end of a log meanwhile.
    """

    def __init__(self, *, may_be_written: bool, should_stop: Callable[[], bool]) -> None:
        self.batches = self.records = self.size_bytes = 0
        self.problems: list[str] = []
        self._may_be_written = may_be_written
        self._should_stop = should_stop
        self._files = RealFiles()
        self._transactions = TransactionCheck(self._files)
        # The offset of the next batch; None before the first segment.
        self._expected: int | None = None

    def _may_skip(self, log: Path, base_offset: int) -> bool:
        """Return whether offsets may be left out before a segment: a copy goes on where its source begins."""
        may_end_anywhere = PartitionFiles(self._files, log.parent).read_holes_until() == INT64_MAX
        return may_end_anywhere and self._expected is not None and base_offset > self._expected

    def add(self, log: Path, *, end: int, is_sealed: bool, is_last: bool) -> None:
        """Check a segment up to byte ``end``; its indexes only if it is sealed."""
        self._transactions.begin()
        base_offset = _base_offset(log)
        if (
            self._expected is not None
            and base_offset != self._expected
            and not self._may_skip(log, base_offset)
        ):
            self.problems.append(
                f"{log}: begins at offset {base_offset}, the segment before ends at {self._expected - 1}"
            )
        expected = base_offset
        indexed, index_problems = _indexed(self._files, log, end) if is_sealed else ({}, [])
        for scanned in _scan(log, end=end):
            if self._should_stop():
                raise VerificationStopped
            expected = scanned.next_offset
            if isinstance(scanned, CorruptRange):
                # Up to an end that was given there is no space.
                if not (scanned.is_blank and self._may_be_written):
                    self._add_corrupt(log, scanned, end)
                continue
            if indexed.get(scanned.position) == scanned.last_offset - base_offset:
                del indexed[scanned.position]
            self.batches += 1
            self.records += scanned.record_count
            if scanned.is_transactional:
                _note_transactional(self._transactions, log, scanned)
        self._expected = expected
        if is_sealed:
            self.problems += self._transactions.problems(log, next_offset=expected, is_last=is_last)
        self.size_bytes += end
        self.problems += index_problems
        index_path = log.with_suffix(INDEX_SUFFIX)
        self.problems += [
            f"{index_path}: offset {base_offset + relative} is not at byte {position} of the log"
            for position, relative in indexed.items()
        ]

    def _add_corrupt(self, log: Path, corrupt: CorruptRange, end: int) -> None:
        is_torn = self._may_be_written and corrupt.end_position == end
        self.problems.append(
            f"{log}: corrupt from byte {corrupt.position} to {corrupt.end_position}: {corrupt.reason}"
            + (" (the end: torn, or being written)" if is_torn else "")
        )


def _note_transactional(transactions: TransactionCheck, log: Path, header: rb.BatchHeader) -> None:
    file = _ReadOnlyFile(log)
    try:
        transactions.note(file, header)
    finally:
        file.close()


def _indexed(files: Files, log: Path, end: int) -> tuple[dict[int, int], list[str]]:
    """Return the index before byte ``end`` of ``log``, and both indexes' problems.

    The index maps positions to relative offsets.
    """
    problems: list[str] = []
    indexed: dict[int, int] = {}
    index_path, time_path = log.with_suffix(INDEX_SUFFIX), log.with_suffix(TIME_INDEX_SUFFIX)
    raw = read_file(files, index_path)
    if raw is not None:
        index = OffsetIndex.from_bytes(raw, log_bytes=max(1, log.stat().st_size))
        if index is None:
            problems.append(f"{index_path}: its entries do not ascend, or point past the end of the log")
        else:
            # A segment that grew and was sealed meanwhile has entries past ``end``.
            indexed = {position: relative for relative, position in index.entries() if position < end}
    raw = read_file(files, time_path)
    if raw is not None and TimeIndex.from_bytes(raw) is None:
        problems.append(f"{time_path}: its entries do not ascend")
    key_path = log.with_suffix(KEY_INDEX_SUFFIX)
    raw = read_file(files, key_path)
    if raw is not None and (problem := check_key_index(raw)) is not None:
        problems.append(f"{key_path}: {problem}; it is built again when it is needed")
    return indexed, problems
