"""Sizes and times of a shared engine.

``app/composition.py`` takes those that users may choose from the settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .committer import CommitOptions
from .compactor import CompactorOptions
from .runs.object_reads import ReadOptions
from .upkeep import UpkeepOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedOptions:
    """Sizes in bytes, times in ms.

    An object is written when it has ``object_bytes``, or ``linger_ms`` after the one before. Above
    ``buffered_bytes_max`` of appends that are not committed, more are refused. ``loads_max`` requests to the
    object store serve readers at a time.
    """

    linger_ms: int = 250
    object_bytes: int = 8 << 20
    buffered_bytes_max: int = 256 << 20
    cache_bytes_max: int = 512 << 20
    loads_max: int = 32
    read: ReadOptions = field(default_factory=ReadOptions)
    read_ahead_blocks: int = 4
    poll_interval_ms: int = 50
    idle_poll_interval_ms: int = 1000
    commit: CommitOptions = field(default_factory=CommitOptions)
    table_memory_bytes_max: int = 64 << 20
    upkeep: UpkeepOptions = field(default_factory=UpkeepOptions)
    compaction: CompactorOptions = field(default_factory=CompactorOptions)
