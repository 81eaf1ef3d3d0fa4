"""Shared state of the parts of a run."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from .log_writer import FLUSH_BYTES, LogWriter
from .options import CdcOptions
from .postgres.catalog import Postgres
from .registered import TableForms
from .schema_log import SchemaLog
from .status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Options, status and connections of a run.

    Another thread sets ``stopping``; the run then ends with ``Stopped``.
    """

    options: CdcOptions
    status: Status
    postgres: Postgres
    writer: LogWriter
    forms: TableForms
    schemas: SchemaLog
    stopping: threading.Event

    @property
    def must_flush(self) -> bool:
        """Whether the writer has buffered ``FLUSH_BYTES``."""
        return self.writer.buffered_bytes >= FLUSH_BYTES

    def flush(self) -> None:
        """Sync all buffered events and count them. Raises Stopped, SteleClientError."""
        self.writer.flush()
        self.status.events = self.status.events_before + self.writer.written
        self.status.repeated = self.writer.repeated
