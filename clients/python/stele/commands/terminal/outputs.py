"""Format records as text, JSON, CSV or a hex dump."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Container, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from ...operations.json_records import record_as_json
from ...records import Record

F = TypeVar("F", bound=Callable[..., Any])
Writer = Callable[[Record[bytes]], bytes]


_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "ndjson", "csv", "hex"]),
    default="text",
    show_default=True,
    help="Output format: values as they are, a JSON array, a JSON object per line, CSV, or a hex dump.",
)
_RAW = click.option(
    "--raw", is_flag=True, help="Print keys and values as they are, also those that have a schema."
)


@dataclass(slots=True)
class DecodedRecord(Record[bytes]):
    """A record whose key, value or both are the JSON text of what a schema describes."""

    key_schema: dict[str, Any] | None = None
    value_schema: dict[str, Any] | None = None


# What ``--format text`` prints before the value.
_FIELDS: dict[str, Callable[[Record[bytes]], bytes]] = {
    "partition": lambda record: str(record.partition).encode(),
    "offset": lambda record: str(record.offset).encode(),
    "timestamp": lambda record: iso(record.timestamp).encode(),
    "key": lambda record: b"null" if record.key is None else record.key,
    "headers": lambda record: b",".join(
        name.encode() + b"=" + (value or b"") for name, value in record.headers
    ),
}


def partitions_option(command: F) -> F:
    """Add ``--partition``, whose values the command gets as ``partitions``."""
    text = "Read this partition only. May be repeated.  [default: all]"
    return click.option("--partition", "partitions", type=int, metavar="N", multiple=True, help=text)(command)


def record_options(*, always: Container[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of a command that prints records.

    The command gets ``writer`` and ``raw`` in their place. The fields in ``always`` are shown without an option.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*, form: str, raw: bool, **arguments: Any) -> None:
            shown = [field for field in _FIELDS if field in always or arguments.pop(field)]
            command(writer=writer_of(form, shown), raw=raw or form == "hex", **arguments)

        for field in reversed([field for field in _FIELDS if field not in always]):
            text = f"Print the {field} of each record, with --format text."
            run = click.option(f"--{field.removesuffix('s')}s", field, is_flag=True, help=text)(run)
        return _FORMAT(_RAW(run))

    return decorate


def writer_of(form: str, shown: Sequence[str]) -> Writer:
    """Return the writer of a ``--format``; that of text prints the ``shown`` fields, too."""
    writers: dict[str, Writer] = {
        "text": text_writer(shown),
        "ndjson": ndjson_line,
        "json": JsonArray(),
        "csv": CsvRows(),
        "hex": hex_dump,
    }
    return writers[form]


@contextmanager
def printing(writer: Writer) -> Generator[Callable[[Iterable[Record[bytes]]], None]]:
    """Yield a function that prints records to stdout; end what has been printed.

    A reader that closes the pipe, such as ``head``, ends the block.
    """
    out = sys.stdout.buffer

    def write(records: Iterable[Record[bytes]]) -> None:
        out.writelines(map(writer, records))
        out.flush()

    try:
        try:
            yield write
        finally:
            if isinstance(writer, JsonArray):
                out.write(writer.end())
                out.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout at exit: not into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def text_writer(shown: Sequence[str]) -> Writer:
    """Return a writer of one line per record: the shown fields and the value, tab-separated."""
    fields = [_FIELDS[field] for field in shown]

    def write(record: Record[bytes]) -> bytes:
        value = b"null" if record.value is None else record.value
        return b"\t".join([*(field(record) for field in fields), value]) + b"\n"

    return write


def ndjson_line(record: Record[bytes]) -> bytes:
    """Format a record as one line of JSON."""
    return msgspec.json.encode(_as_json(record)) + b"\n"


def _as_json(record: Record[bytes]) -> dict[str, Any]:
    document = record_as_json(record)
    if isinstance(record, DecodedRecord):
        for part, data, schema, name in (
            ("key", record.key, record.key_schema, "key_schema"),
            ("value", record.value, record.value_schema, "schema"),
        ):
            if data is not None and schema is not None:
                document.pop(f"{part}_b64", None)
                document |= {part: msgspec.Raw(data), name: schema}
    return document


class JsonArray:
    """Formats records as one JSON array; ``end`` returns its closing bracket."""

    def __init__(self) -> None:
        self._is_begun = False

    def __call__(self, record: Record[bytes]) -> bytes:
        before = b",\n " if self._is_begun else b"[\n "
        self._is_begun = True
        return before + msgspec.json.encode(_as_json(record))

    def end(self) -> bytes:
        return b"\n]\n" if self._is_begun else b"[]\n"


class CsvRows:
    """Formats records as CSV with a header row.

    Bytes that are not UTF-8 become ``\\xNN``.
    """

    def __init__(self) -> None:
        self._is_begun = False

    def __call__(self, record: Record[bytes]) -> bytes:
        out = io.StringIO()
        rows = csv.writer(out, lineterminator="\n")
        if not self._is_begun:
            rows.writerow(["partition", "offset", "timestamp", "key", "value"])
            self._is_begun = True
        rows.writerow(
            [record.partition, record.offset, iso(record.timestamp), _text(record.key), _text(record.value)]
        )
        return out.getvalue().encode()


def hex_dump(record: Record[bytes]) -> bytes:
    """Format a record as a heading and 16 bytes per line, like ``hexdump -C``."""
    lines = [
        f"── {record.topic}-{record.partition} offset {record.offset}  {iso(record.timestamp)}  "
        f"key {_text(record.key) if record.key is not None else 'null'}"
    ]
    value = record.value
    if value is None:
        lines.append("(null)")
    else:
        for start in range(0, len(value), 16):
            row = value[start : start + 16]
            left, right = row[:8].hex(" "), row[8:].hex(" ")
            shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            lines.append(f"{start:08x}  {left:<23}  {right:<23}  |{shown}|")
    return "\n".join(lines).encode() + b"\n"


def iso(timestamp_ms: int) -> str:
    """Format a timestamp as RFC 3339 in UTC.

    As a number if it is outside the calendar.
    """
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z"


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="backslashreplace")
