"""Arrays whose items stay encoded: most requests that have thousands of them need only a few.

``EncodedRows`` is what a reader returns for an array of ``Rows`` whose items have one size in this version.
``PartlyEncoded`` is an array to write, some of whose items are encoded already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

_T = TypeVar("_T")


class EncodedRows(Sequence[_T]):
    """A sequence of messages that are decoded when they are asked for.

    ``rows`` has the bytes of each.
    """

    __slots__ = ("_read", "rows")

    def __init__(self, rows: list[bytes], read: Callable[[bytes, int], tuple[_T, int]]) -> None:
        self.rows: list[bytes] = rows
        self._read = read

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        if isinstance(index, slice):
            return [self._read(row, 0)[0] for row in self.rows[index]]
        return self._read(self.rows[index], 0)[0]

    def __iter__(self) -> Iterator[_T]:
        read = self._read
        for row in self.rows:
            yield read(row, 0)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def __repr__(self) -> str:
        return repr(list(self))


class PartlyEncoded(Generic[_T]):
    """An array of ``count`` items to write; iterates over runs of encoded items (``bytes``) and over messages."""

    __slots__ = ("_count", "_parts")

    def __init__(self, count: int, parts: Sequence[bytes | _T]) -> None:
        self._count = count
        self._parts = parts

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)
