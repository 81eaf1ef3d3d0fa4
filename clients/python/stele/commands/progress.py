"""A progress line on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click

_EVERY_S = 0.1
_BAR_WIDTH = 30


class Progress:
    """Shows the number of records and, if ``total_bytes`` is known, a progress bar."""

    def __init__(self, total_bytes: int | None) -> None:
        self._total_bytes = total_bytes
        self._is_shown = sys.stderr.isatty()
        self._count = 0
        self._bytes = 0
        self._started_s = time.monotonic()
        self._next_s = self._started_s + _EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            click.echo("\r\033[K", nl=False, err=True)

    def advance(self, consumed_bytes: int) -> None:
        """Count one more record."""
        self._count += 1
        self._bytes += consumed_bytes
        if self._is_shown and time.monotonic() >= self._next_s:
            self._show()

    def _show(self) -> None:
        now_s = time.monotonic()
        self._next_s = now_s + _EVERY_S
        rate = self._count / (now_s - self._started_s)
        bar = ""
        if self._total_bytes:
            share = min(self._bytes / self._total_bytes, 1.0)
            filled = int(share * _BAR_WIDTH)
            bar = f"[{'█' * filled}{'·' * (_BAR_WIDTH - filled)}] {share:4.0%}  "
        click.echo(f"\r\033[K{bar}{self._count:,} records  {rate:,.0f}/s", nl=False, err=True)
