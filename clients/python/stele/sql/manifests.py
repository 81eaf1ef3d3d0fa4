"""Read which data files a snapshot of an Iceberg table has, without pyiceberg, whose import takes a second."""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

from ..schemas import avro
from ..schemas.avro.reading import Read, Readers, budget_for
from ..schemas.avro.types import Type
from ..schemas.definitions import InvalidSchema, InvalidValue

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# The files of so many manifests, and of so many snapshots, are kept.
_KEPT_MAX, _LISTS_MAX = 1000, 20
_DELETED = 2
# Of a block, decompressed; pyiceberg and Iceberg's Java make blocks of some 64 KiB.
_BLOCK_BYTES_MAX = 64 * 1024 * 1024
_Wanted: TypeAlias = "Mapping[str, _Wanted]"
_MANIFEST: _Wanted = {"manifest_path": {}, "content": {}}
_ENTRY: _Wanted = {
    "status": {},
    "data_file": {"file_path": {}, "record_count": {}, "file_size_in_bytes": {}},
}


class DataFile(NamedTuple):
    """A Parquet file: its location, its bytes and its rows."""

    location: str
    size: int
    rows: int


class Manifests:
    """Lists the files of snapshots; ``read`` returns a whole file."""

    def __init__(self) -> None:
        # Neither lists of manifests nor manifests ever change.
        self._lists: OrderedDict[str, list[DataFile]] = OrderedDict()
        self._kept: OrderedDict[str, list[DataFile]] = OrderedDict()

    def files_of(self, manifests: str, read: Callable[[str], bytes]) -> list[DataFile]:
        """Return the data files of a snapshot, whose list of ``manifests`` is there.

        Raises:
            ValueError: it has files that delete rows, which the writer of these tables never makes.
        """
        if manifests not in self._lists:
            files: list[DataFile] = []
            for manifest in records(read(manifests), _MANIFEST):
                if manifest["content"]:
                    raise ValueError(f"the table has files that delete rows, so it is not read: {manifests}")
                files += self._files(manifest["manifest_path"], read)
            _keep(self._lists, manifests, sorted(files), _LISTS_MAX)
        self._lists.move_to_end(manifests)
        return self._lists[manifests]

    def _files(self, path: str, read: Callable[[str], bytes]) -> list[DataFile]:
        if path not in self._kept:
            files = [
                DataFile(one["file_path"], one["file_size_in_bytes"], one["record_count"])
                for entry in records(read(path), _ENTRY)
                if entry["status"] != _DELETED
                for one in (entry["data_file"],)
            ]
            _keep(self._kept, path, files, _KEPT_MAX)
        self._kept.move_to_end(path)
        return self._kept[path]


def _keep(kept: OrderedDict[str, list[DataFile]], path: str, files: list[DataFile], limit: int) -> None:
    kept[path] = files
    if len(kept) > limit:
        kept.popitem(last=False)


def records(data: bytes, wanted: _Wanted) -> Iterator[dict[str, Any]]:
    """Yield the records of a container file of Avro, with the ``wanted`` fields. Raises ``ValueError``."""
    try:
        yield from _records(data, wanted)
    except (LookupError, UnicodeDecodeError, zlib.error, InvalidSchema, InvalidValue) as error:
        raise ValueError(f"a manifest of the table is damaged: {error!r}") from error


def _records(data: bytes, wanted: _Wanted) -> Iterator[dict[str, Any]]:
    if not data.startswith(_MAGIC):
        raise ValueError("a manifest of the table is no Avro file")
    header, at = _header(data, len(_MAGIC))
    codec = header.get("avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise ValueError(f"a manifest of the table is compressed with {codec!r}, which is not read here")
    written = avro.parse(header["avro.schema"].decode(), registered=True).root
    read = Readers().reader(written, _with(written, wanted))
    # Each block ends with it.
    sync, at = data[at : at + _SYNC_BYTES], at + _SYNC_BYTES
    while at < len(data):
        count, at = _long(data, at)
        size, at = _long(data, at)
        block, end = data[at : at + size], at + size
        at = end + _SYNC_BYTES
        if count < 0 or size < 0 or data[end:at] != sync:
            raise IndexError("a block is cut off")
        yield from _values(read, count, block if codec == b"null" else _inflated(block))


def _inflated(block: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    inflated = inflater.decompress(block, _BLOCK_BYTES_MAX)
    if not inflater.eof:
        raise ValueError(
            f"a block of a manifest of the table is cut off, or larger than {_BLOCK_BYTES_MAX} bytes"
        )
    return inflated


def _values(read: Read, count: int, block: bytes) -> Iterator[dict[str, Any]]:
    at, budget = 0, budget_for(block)
    for _ in range(count):
        value, at = read(block, at, 0, budget)
        yield cast("dict[str, Any]", value)


def _with(type_: Type, wanted: _Wanted) -> Type:
    """Return a record with the wanted fields alone."""
    if type_.kind != "record":
        return type_
    return replace(
        type_,
        fields=[
            replace(field, type=_with(field.type, wanted[field.name]))
            for field in type_.fields
            if field.name in wanted
        ],
    )


def _long(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def _header(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    """Return the metadata of a container file, and where it ends."""
    found: dict[str, bytes] = {}
    while True:
        count, at = _long(data, at)
        if not count:
            return found, at
        if count < 0:
            _, at = _long(data, at)
        for _ in range(abs(count)):
            pair: list[bytes] = []
            for _ in range(2):
                size, at = _long(data, at)
                if not 0 <= size <= len(data) - at:
                    raise IndexError("the header is cut off")
                pair.append(data[at : at + size])
                at += size
            found[pair[0].decode()] = pair[1]
