"""The frames between the broker and a process that runs SQL statements (ADR-0081).

Each is a length of four bytes, big endian, and a MessagePack object with a tag. The broker sends ``Check``; then ``Run``
or ``Drop``, after ``Named``. While a statement runs, the process asks for batches, offsets, schemas and bytes of
files, one at a time, and the broker answers. ``Ended`` or ``Failed`` is its last frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeAlias

import msgspec

LENGTH = struct.Struct(">I")
# A stored batch may be as large as a request, and is never split.
FRAME_BYTES_MAX = 256 * 1024 * 1024


class Check(msgspec.Struct, tag="check"):
    """A statement, to be parsed."""

    sql: str


class Named(msgspec.Struct, tag="named"):
    """The tables that the statement names: as such, and with what precedes each, such as ``a.b``."""

    tables: list[str]
    qualified: list[str]


class Snapshot(msgspec.Struct):
    """A snapshot of an Iceberg table: the list of its manifests, and the next offset of each partition that it has.

    ``fields`` are those of its schema, as Iceberg writes them.
    """

    manifests: str
    offsets: dict[int, int]
    fields: bytes


class Schema(msgspec.Struct):
    """A schema that values name by its id or its GUID, with the texts that it refers to."""

    id: int
    guid: str
    type: str
    text: str
    references: dict[str, str]


class Table(msgspec.Struct):
    """A topic: which offsets of the log the statement reads, as partition, first, and after the last.

    What is before them is in the ``snapshot``, or in that of the ``errors``. Values have the fields of ``schemas``, the
    latest of which is not always last; None: they are text. In the files of a table that ``has_fields`` they are columns.
    """

    name: str
    partitions: list[tuple[int, int, int]]
    snapshot: Snapshot | None = None
    errors: Snapshot | None = None
    schemas: list[Schema] | None = None
    has_fields: bool = False


class Run(msgspec.Struct, tag="run"):
    """The statement may run over ``tables``; the answer has at most so many rows and bytes, and ends at ``limit`` rows."""

    tables: list[Table]
    form: str
    limit: int | None
    rows_max: int
    bytes_max: int


class Drop(msgspec.Struct, tag="drop"):
    """The statement does not run; or, in place of an answer, it ends."""


class Fetch(msgspec.Struct, tag="fetch"):
    """Ask for batches of a table, by its index in ``Run``."""

    table: int
    partition: int
    offset: int
    until: int


class Fetched(msgspec.Struct, tag="fetched"):
    """Batches; the next ones begin at ``next_offset``."""

    batches: bytes
    next_offset: int


class Seek(msgspec.Struct, tag="seek"):
    """Ask where the records of a time or later begin."""

    table: int
    partitions: list[int]
    at_ms: int


class Sought(msgspec.Struct, tag="sought"):
    """An offset per partition, -1 if it has no such record."""

    offsets: list[int]


class Find(msgspec.Struct, tag="find"):
    """Ask for a schema that a value of a table names, by its id or its GUID."""

    table: int
    schema: int | str


class Found(msgspec.Struct, tag="found"):
    """A schema; None if there is none."""

    schema: Schema | None


class Read(msgspec.Struct, tag="read"):
    """Ask for the bytes from ``start`` to ``end`` of a file of a table, None for all of it."""

    table: int
    path: str
    start: int = 0
    end: int | None = None


class Bytes(msgspec.Struct, tag="bytes"):
    """What was read of a file."""

    body: bytes


class Data(msgspec.Struct, tag="data"):
    """A piece of the answer, in the form of ``Run``."""

    body: bytes


class Ended(msgspec.Struct, tag="ended"):
    """The whole answer was sent; ``is_truncated`` if it was longer than its ``limit``."""

    rows: int
    is_truncated: bool


class Failed(msgspec.Struct, tag="failed"):
    """Why the statement was refused or stopped; ``setting`` is the one that limits it, if any."""

    reason: str
    setting: str = ""


ToProcess: TypeAlias = Check | Run | Drop | Fetched | Sought | Found | Bytes
Question: TypeAlias = Fetch | Seek | Find | Read
ToBroker: TypeAlias = Named | Question | Data | Ended | Failed

decode_to_process: Callable[[bytes], ToProcess] = msgspec.msgpack.Decoder(ToProcess).decode
decode_to_broker: Callable[[bytes], ToBroker] = msgspec.msgpack.Decoder(ToBroker).decode


def encode(frame: ToProcess | ToBroker) -> bytes:
    """Return the bytes of a frame with its length."""
    body = msgspec.msgpack.encode(frame)
    return LENGTH.pack(len(body)) + body
