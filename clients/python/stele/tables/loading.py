"""When a blocking table is loaded, the counterpart of ``async_loading``."""

from __future__ import annotations

from typing import TypeVar

from .core import TableCore

K = TypeVar("K")
V = TypeVar("V")


class LoadedTable(TableCore[K, V]):
    """A table that is loaded when it is read for the first time, if not by ``start``."""

    def start(self) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        if not self._is_loaded and not self._is_closed:
            self.start()
        super()._check()
