"""What the broker needs of the schema registry, to hold topics to their contracts.

A topic may ask that keys and values have schemas (``stele.value.schema.validation``). Its batches go through the produce
queue: a thread checks each record against the schemas that are known, which is nearly always all of it. Otherwise the
event loop looks for those that are not, and the thread begins again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stele.wire.record_batch import RecordView

from ...storage.topic_config import TopicConfig


class UnknownSchemas(Exception):
    """Records name schemas that are not known yet; nothing is refused because of that."""


class ContractCheck(Protocol):
    """Checks the records of one batch; used by one thread."""

    def look_at(self, records: Sequence[RecordView], first_index: int) -> None: ...

    def conclude(self) -> None:
        """Raises ``BrokenContract`` if a record is refused."""
        ...


class TopicContract(Protocol):
    """The contract of a topic, for the batches of one produce."""

    def check(self) -> ContractCheck:
        """Return a check of one batch."""
        ...

    def conclude(self) -> None:
        """Raises ``UnknownSchemas`` if the checks have met schemas that are not known."""
        ...

    async def look_up(self) -> TopicContract:
        """Look for the schemas that its checks did not know, and return a contract that knows all that there are.

        Raises:
            BrokenContract: they are too many or too large for one request.
            StorageUnavailable: the schemas cannot be read now.
        """
        ...


class Contracts(Protocol):
    """The contracts of all topics; the registry has them."""

    async def of(self, topic: str, config: TopicConfig) -> TopicContract:
        """Return the contract of a topic whose configuration has one."""
        ...
