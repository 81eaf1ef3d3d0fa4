"""The frames between the broker and a process that runs SQL statements (ADR-0081).

Each is a length of four bytes, big endian, and a MessagePack object with a tag. The broker sends ``Check``; then ``Run``
or ``Drop``, after ``Named``. While a statement runs, the process asks for batches and offsets, one at a time, and the
broker answers. ``Ended`` or ``Failed`` is its last frame.
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
    """A snapshot of an Iceberg table: its metadata file, and the next offset of each partition that it has."""

    location: str
    snapshot_id: int
    offsets: dict[int, int]


class Table(msgspec.Struct):
    """A topic: which offsets of the log the statement reads, as partition, first, and after the last.

    What is before them is in the ``snapshot``, or in that of the ``errors``.
    """

    name: str
    partitions: list[tuple[int, int, int]]
    snapshot: Snapshot | None = None
    errors: Snapshot | None = None


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


ToProcess: TypeAlias = Check | Run | Drop | Fetched | Sought
ToBroker: TypeAlias = Named | Fetch | Seek | Data | Ended | Failed

decode_to_process: Callable[[bytes], ToProcess] = msgspec.msgpack.Decoder(ToProcess).decode
decode_to_broker: Callable[[bytes], ToBroker] = msgspec.msgpack.Decoder(ToBroker).decode


def encode(frame: ToProcess | ToBroker) -> bytes:
    """Return the bytes of a frame with its length."""
    body = msgspec.msgpack.encode(frame)
    return LENGTH.pack(len(body)) + body
