"""When a table for asyncio is loaded, the counterpart of ``loading``."""

from __future__ import annotations

from typing import TypeVar

from .core import TableCore

K = TypeVar("K")
V = TypeVar("V")


class AsyncLoadedTable(TableCore[K, V]):
    """A table that is loaded by ``start``, because reading cannot wait."""
