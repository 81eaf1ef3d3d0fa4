"""What went through the broker, counted for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Totals since the broker started; plain integers, which metrics read."""

    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    fetched_bytes: int = 0
