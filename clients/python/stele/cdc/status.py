"""The status of a connector, for the terminal, metrics and ``GET /v1/cdc``.

One thread writes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .decoding.notation import lsn_text
from .errors import GapError


@dataclass(slots=True)
class TableStatus:
    """Counts of a table: of its last copy, with the planner's estimate of the rows, and of its changes."""

    copied: int = 0
    expected: int = 0
    changes: int = 0
    is_copying: bool = False


@dataclass(slots=True)
class Status:
    """Status of a connector.

    ``lag_bytes``: WAL from the confirmed position to the newest; ``retained_bytes``: WAL that is kept for the slot, from
    before the oldest transaction that is open. Both are None before the first measurement. ``commit_ms``: commit time
    of the last transaction handled. ``gap``: the LSNs between which changes may be missing, if the state is ``gap``.
    """

    slot: str
    database: str
    state: str = "connecting"
    confirmed_lsn: int = 0
    lag_bytes: int | None = None
    retained_bytes: int | None = None
    wal_status: str | None = None
    exceeds_max_lag: bool = False
    events: int = 0
    events_before: int = 0
    repeated: int = 0
    transactions: int = 0
    notifications: int = 0
    messages: int = 0
    refused_messages: int = 0
    commit_ms: int = 0
    failures: int = 0
    last_error: str | None = None
    gap: dict[str, str] | None = None
    refused_tables: dict[str, str] = field(default_factory=dict[str, str])
    tables: dict[str, TableStatus] = field(default_factory=dict[str, TableStatus])

    def table(self, name: str) -> TableStatus:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = TableStatus()
        return table

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.last_error = str(error)
        self.state = "waiting"
        self.events_before = self.events

    def ended(self, error: Exception) -> None:
        """Note the failure that no retry can fix."""
        self.failed(error)
        self.state = "failed"
        if isinstance(error, GapError):
            self.state = "gap"
            self.gap = {"from": lsn_text(error.from_lsn), "to": lsn_text(error.to_lsn)}

    def measured(self, lag_bytes: int, wal_status: str | None, retained_bytes: int | None) -> None:
        self.lag_bytes = lag_bytes
        self.wal_status = wal_status
        self.retained_bytes = retained_bytes

    def follows(self, names: Collection[str]) -> None:
        """Forget all tables but those that are followed."""
        self.tables = {name: self.table(name) for name in names}
        for table in self.tables.values():
            table.is_copying = False

    def document(self) -> dict[str, Any]:
        """Return the status in the form of its JSON document."""
        document = {named.name: getattr(self, named.name) for named in fields(self)}
        del document["events_before"]
        return document | {
            "confirmed_lsn": lsn_text(self.confirmed_lsn),
            "tables": {name: asdict(table) for name, table in sorted(self.tables.items())},
        }
