"""A survey of a cluster: its brokers, its objects, and its backlogs.

``Survey`` is a snapshot of the database, the same at every broker. Ages are those of the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .membership import Member

# A killed broker is shown for this long, unless another one takes its id.
DEAD_SHOWN_MS = 24 * 3_600_000
BROKERS_SHOWN_MAX = 1000
# A count of suspects ends here.
SUSPECTS_COUNTED_MAX = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedBroker:
    """A broker that is registered, or was killed.

    ``report`` is what it said last of itself, empty if nothing.
    """

    member: Member
    is_live: bool
    heartbeat_age_ms: int
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBacklog:
    """Partitions with bytes in small objects; ``oldest_ms`` is the longest wait, None if nothing waits."""

    partitions: int
    bytes: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBacklog:
    """The backlog of garbage collection.

    ``suspects`` are objects that lost a run, counted up to ``SUSPECTS_COUNTED_MAX``. ``deletable_objects`` have no
    runs, and wait until no reader can want their bytes. ``silent_uploaders`` are brokers that ended: the store is
    searched for objects that they did not commit.
    """

    suspects: int
    deletable_objects: int
    deletable_bytes: int
    silent_uploaders: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectTotal:
    """Objects of one store in one state.

    Stores are ``objects`` and ``inline``; states are ``committed``, ``dead`` and ``fenced``.
    """

    store: str
    state: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """``partitions`` and ``log_bytes`` are those of all topics; ``metadata_bytes`` are tables and indexes."""

    brokers: Sequence[SurveyedBroker]
    partitions: int
    log_bytes: int
    merge: MergeBacklog
    sweep: SweepBacklog
    metadata_bytes: int


class Surveyor(Protocol):
    """Every method may raise ``StorageUnavailable``.

    The database cannot be reached, or takes too long.
    """

    async def survey(self) -> Survey:
        """Read small tables, and one row per partition."""
        ...

    async def objects(self) -> Sequence[ObjectTotal]:
        """Read a row per object, of which there may be millions."""
        ...
