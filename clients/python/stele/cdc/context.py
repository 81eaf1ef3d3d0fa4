"""What the parts of one run have in common."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from .log_writer import FLUSH_BYTES, LogWriter
from .options import CdcOptions
from .postgres import Postgres
from .status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """``stopping`` is set by another thread: the run then ends with ``Stopped``."""

    options: CdcOptions
    status: Status
    postgres: Postgres
    writer: LogWriter
    stopping: threading.Event

    @property
    def must_flush(self) -> bool:
        """The writer holds as much as is sent at once."""
        return self.writer.buffered_bytes >= FLUSH_BYTES

    def flush(self) -> None:
        """Returns when every event of the writer is synced, and counted. Raises Stopped, SteleClientError."""
        self.writer.flush()
        self.status.events = self.status.events_before + self.writer.written
        self.status.repeated = self.writer.repeated
