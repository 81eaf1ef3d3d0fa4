"""Cuts: what of a data directory is in a bucket, as of one moment.

A cut names, for each partition, the runs of objects whose bytes are its segments, and for each store the objects that
have its file. Most cuts say only what has changed since the one before; a *base* says everything, so that a reader
needs the newest base and the cuts after it. A cut is a gzip file of JSON lines: the header, one line per change, and the
number of lines. ``docs/formats/replica.md`` has the fields.

Nothing here does I/O.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, TypeAlias

import msgspec

from ..segments.remote_segments import RunSpan

VERSION = 1
# What a cut may become when it is decompressed.
CUT_BYTES_MAX = 1 << 30
_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1


class CorruptCut(ValueError):
    """The bytes of a cut are damaged, or a later release wrote them."""


class SegmentRuns(msgspec.Struct, frozen=True, array_like=True):
    """A segment: ``runs`` are all of its bytes, in order. ``next_offset`` follows its last record."""

    base_offset: int
    next_offset: int
    runs: tuple[RunSpan, ...]

    @property
    def size(self) -> int:
        return sum(run.length for run in self.runs)


class ChunkSpan(msgspec.Struct, frozen=True, array_like=True):
    """Chunk ``number`` (from 0) of the file of a store, in an object; ``crc`` is its CRC-32C."""

    number: int
    object: str
    position: int
    length: int
    crc: int


class CutHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line.

    ``sequence`` rises by one with each cut, ``generation`` with each start of a broker that writes them. ``base`` is the
    sequence of the newest base, its own for a base. ``time_ms`` is the moment of the cut, and never falls.
    ``leader_epoch`` is that of the broker. ``oldest_ms`` is the earliest moment to which a restore can go back, -1 if the
    broker does not know it: earlier cuts may still be there, but objects that they name are deleted.
    """

    sequence: int
    base: Annotated[int, msgspec.Meta(ge=0)]
    generation: int
    time_ms: int
    cluster_id: str
    incarnation: str
    leader_epoch: int
    oldest_ms: int = -1
    version: int = VERSION


class PartitionChange(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="partition"):
    """A partition that is new or has changed.

    Of what was known, the segments from ``kept_from`` up to before ``changed_from`` stay; ``segments`` follow them.
    ``epochs`` are pairs of a leader epoch and its first offset.
    """

    topic_id: str
    partition: int
    topic: str
    log_start_offset: int
    holes_until: int
    epochs: tuple[tuple[int, int], ...]
    kept_from: int
    changed_from: int
    segments: tuple[SegmentRuns, ...]


class PartitionGone(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="gone"):
    """A partition that was deleted."""

    topic_id: str
    partition: int


class StoreChange(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="store"):
    """A store that has changed, and whose file now has ``size`` bytes.

    ``chunks`` are those that are new. All but the last have ``chunk_bytes``.
    """

    name: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    chunk_bytes: Annotated[int, msgspec.Meta(ge=1)]
    chunks: tuple[ChunkSpan, ...]


class Unused(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="unused"):
    """Objects that no later cut names, since ``since_ms``."""

    objects: tuple[str, ...]
    since_ms: int


class Deleted(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="deleted"):
    """Unused objects that were deleted."""

    objects: tuple[str, ...]


class _End(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", tag="end"):
    lines: int


Change: TypeAlias = PartitionChange | PartitionGone | StoreChange | Unused | Deleted
_Line: TypeAlias = PartitionChange | PartitionGone | StoreChange | Unused | Deleted | _End

_encoder = msgspec.json.Encoder()
_header_decoder = msgspec.json.Decoder(CutHeader)
_line_decoder: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


class Cut(msgspec.Struct, frozen=True):
    header: CutHeader
    changes: Sequence[Change]


def encode_line(line: CutHeader | Change) -> bytes:
    return _encoder.encode(line) + b"\n"


def compress_cut(lines: Sequence[bytes]) -> bytes:
    """Return the bytes of a cut from its encoded lines, the header first; for threads."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    parts = [compressor.compress(line) for line in lines]
    parts.append(compressor.compress(_encoder.encode(_End(lines=len(lines))) + b"\n"))
    parts.append(compressor.flush())
    return b"".join(parts)


def encode_cut(header: CutHeader, changes: Iterable[Change]) -> bytes:
    return compress_cut([encode_line(header), *map(encode_line, changes)])


def decode_cut(data: bytes) -> Cut:
    """Return a cut from its bytes.

    Raises:
        CorruptCut: see there.
    """
    lines = _lines(data)
    try:
        header = _header_decoder.decode(next(lines, b""))
        if header.version > VERSION:
            raise CorruptCut(
                f"a later release wrote the cut: its format is {header.version}, known is {VERSION}"
            )
        changes: list[Change] = []
        for raw in lines:
            line = _line_decoder.decode(raw)
            if isinstance(line, _End):
                if line.lines != len(changes) + 1 or next(lines, None) is not None:
                    break
                return Cut(header, changes)
            changes.append(line)
    except msgspec.MsgspecError as error:
        raise CorruptCut(f"the cut is damaged: {error}") from error
    raise CorruptCut("the cut is damaged: it does not end with its number of lines")


def _lines(data: bytes) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        text = decompressor.decompress(data, CUT_BYTES_MAX)
    except zlib.error as error:
        raise CorruptCut(f"the cut is damaged: {error}") from error
    if decompressor.unconsumed_tail:
        raise CorruptCut(f"the cut has more than {CUT_BYTES_MAX} bytes when it is decompressed")
    if not decompressor.eof:
        raise CorruptCut("the cut is damaged: its end is missing")
    yield from text.splitlines()
