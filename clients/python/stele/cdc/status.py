"""What a connector does, for people, metrics and ``GET /v1/cdc``: plain numbers, written by one thread."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from .notation import lsn_text


@dataclass(slots=True)
class TableStatus:
    """``expected``: about how many rows there are to copy, as PostgreSQL's planner believes."""

    copied: int = 0
    expected: int = 0
    changes: int = 0


@dataclass(slots=True)
class Status:
    """``lag_bytes``: WAL between what is confirmed and the newest; None before it was measured.

    ``commit_ms``: when the last transaction that was handled had committed.
    """

    slot: str
    database: str
    state: str = "connecting"
    confirmed_lsn: int = 0
    lag_bytes: int | None = None
    wal_status: str | None = None
    events: int = 0
    events_before: int = 0
    repeated: int = 0
    transactions: int = 0
    notifications: int = 0
    commit_ms: int = 0
    failures: int = 0
    last_error: str | None = None
    tables: dict[str, TableStatus] = field(default_factory=dict[str, TableStatus])
    began_s: float = field(default_factory=time.monotonic)

    def table(self, name: str) -> TableStatus:
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = TableStatus()
        return found

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.last_error = str(error)
        self.state = "waiting"
        self.events_before = self.events

    def measured(self, lag_bytes: int, wal_status: str | None) -> None:
        self.lag_bytes = lag_bytes
        self.wal_status = wal_status

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "slot": self.slot,
            "database": self.database,
            "state": self.state,
            "confirmed_lsn": lsn_text(self.confirmed_lsn),
            "lag_bytes": self.lag_bytes,
            "wal_status": self.wal_status,
            "events": self.events,
            "repeated": self.repeated,
            "transactions": self.transactions,
            "notifications": self.notifications,
            "commit_ms": self.commit_ms,
            "failures": self.failures,
            "last_error": self.last_error,
            "tables": {name: asdict(table) for name, table in sorted(self.tables.items())},
        }
