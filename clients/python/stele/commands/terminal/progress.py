"""A progress line on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

import click
import msgspec

_EVERY_S = 0.1
_BAR_WIDTH = 30


class _Line:
    """A line that is drawn at most ten times per second, and removed at the end."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._started_s = time.monotonic()
        self._next_s = self._started_s + _EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._draw("")

    def _is_due(self) -> bool:
        return self._is_shown and time.monotonic() >= self._next_s

    def _draw(self, text: str) -> None:
        self._next_s = time.monotonic() + _EVERY_S
        click.echo(f"\r\033[K{text}", nl=False, err=True)

    def _per_second(self, count: float) -> float:
        return count / (time.monotonic() - self._started_s)


class Progress(_Line):
    """Shows the number of records and, if ``total_bytes`` is known, a progress bar."""

    def __init__(self, total_bytes: int | None) -> None:
        super().__init__()
        self._total_bytes = total_bytes
        self._count = 0
        self._bytes = 0

    def advance(self, consumed_bytes: int) -> None:
        """Count one more record."""
        self._count += 1
        self._bytes += consumed_bytes
        if self._is_due():
            bar = f"{_bar(self._bytes, self._total_bytes)}  " if self._total_bytes else ""
            self._draw(f"{bar}{self._count:,} records  {self._per_second(self._count):,.0f}/s")


class ByteProgress(_Line):
    """Shows bytes, their share of a total that is known, and a rate."""

    def show(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` bytes are done."""
        if self._is_due():
            megabytes = done / 1e6
            rate = self._per_second(megabytes)
            self._draw(f"{_bar(done, total)}  {megabytes:,.0f} MB  {rate:,.0f} MB/s")


class StatementProgress(_Line):
    """Shows how much of its topics a SQL statement has read, from the lines of its answer."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""

    def watch(self, part: bytes) -> None:
        """Look for progress in the next part of an answer."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if line.startswith(b'{"progress"') and self._is_due():
                progress = msgspec.json.decode(line)["progress"]
                done, total = progress["offsets"], progress["of"]
                bar = f"{_bar(done, total)}  {done:,} of {total:,} offsets  " if total else ""
                self._draw(f"{bar}{progress['bytes'] / 1e6:,.0f} MB read")


def _bar(done: int, total: int) -> str:
    share = min(done / total, 1.0) if total else 1.0
    filled = int(share * _BAR_WIDTH)
    return f"[{'█' * filled}{'·' * (_BAR_WIDTH - filled)}] {share:4.0%}"
