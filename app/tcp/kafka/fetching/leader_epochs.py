"""The fencing of clients by the leader epoch that they know (KIP-320)."""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode

from ....broker.broker import Broker
from ....errors import SteleError
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
