"""The fencing of clients by the leader epoch that they know (KIP-320)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....errors import SteleError, StorageError
from ....work_budget import visited
from ...errors import error_code_of

NO_EPOCH = -1


def check_leader_epoch(broker: Broker, topic: str, partition: int, epoch: int) -> ErrorCode:
    """Return NONE, or the error for a client whose ``epoch`` is not a current one.

    After it, the client requests metadata again.

    -1 means that the client knows no epoch. With several brokers, epochs rise with each change of leaders; what is
    before the history of the database is out of date (ADR-0071). A broker that shows none accepts any: for -1 in
    the metadata librdkafka sends 0.
    """
    if epoch == NO_EPOCH:
        return ErrorCode.NONE
    try:
        current = broker.leader_epoch(topic, partition)
    except SteleError as error:
        return error_code_of(error)
    if current == NO_EPOCH:
        return ErrorCode.NONE
    if epoch < broker.oldest_leader_epoch(topic, partition):
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > current else ErrorCode.NONE


async def find_leader_epochs(broker: Broker, known: Iterable[tuple[str, int, int]]) -> None:
    """Look at what other brokers know if a client has a later leader epoch than this one; without an error.

    ``known`` has topic, partition and epoch. Another broker has told the client, and this one need not have looked
    since. Not all clients repeat a request that is refused for that.
    """
    if not broker.cluster.is_shared:
        return
    async for topic, partition, epoch in visited(known):
        if check_leader_epoch(broker, topic, partition, epoch) == ErrorCode.UNKNOWN_LEADER_EPOCH:
            with suppress(StorageError):
                await broker.cluster.find()
            return
