"""Whatever a handler's call of the layers below raises, its client gets an answer in the form of its request.

Every API of the dispatch table makes its requests over a connection without a socket. Each call that its handler makes
of the broker, the groups, the transactions and the users raises each leaf of the tree of errors, and an error that is
not in the tree.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.share_groups import ALTER_SHARE_GROUP_OFFSETS_API
from stele.wire.schema import NO_UUID, fields_of

from app.broker.placement import Placement
from app.broker.producing.produce import Acks
from app.errors import BrokerClosing, SteleError, StorageError, StorageUnavailable, TopicError, UnknownTopic
from app.groups.share.group import ShareHeartbeat
from app.tcp.errors import ERROR_CODES
from app.tcp.kafka.apis import API_VERSIONS_KEY, SERVED, Served
from app.tcp.kafka.context import KafkaListener
from tests.support.batches import batch_of
from tests.support.kafka_application import kafka_listener
from tests.support.kafka_peer import read_response, request_frame
from tests.support.kafka_wire import KafkaWire, codes_of
from tests.support.raising import Faults, an_error, leaves, pairs, raising
from tests.support.sample_messages import GROUP, TOPIC, sample

ROWS = [pytest.param(row, id=row.api.name) for row in SERVED.values()]
# A request after the one that fails.
NEXT = request_frame(ApiVersionsRequest(), 0, correlation=2)
ALL = frozenset(kind.__name__ for kind in leaves())
TOPIC_ERRORS = frozenset(kind.__name__ for kind in leaves() if issubclass(kind, TopicError))
STORAGE_ERRORS = frozenset(kind.__name__ for kind in leaves() if issubclass(kind, StorageError))
# Errors that several versions and forms of a request meet; each leaf is tried with one of them.
FEW = (UnknownTopic, StorageUnavailable, BrokerClosing)
# The broker shuts down: clients must look for another broker, each API in its own way.
ELSEWHERE = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
}


class World:
    """A listener whose services raise, and one connection to it."""

    def __init__(self, real: KafkaListener, topic_id: bytes) -> None:
        self.real = real
        self.topic_id = topic_id
        self.faults = Faults()
        listener = replace(
            real,
            broker=raising(real.broker, self.faults, "broker"),
            groups=raising(real.groups, self.faults, "groups"),
            transactions=raising(real.transactions, self.faults, "transactions"),
        )
        self.wire = KafkaWire(listener, real.broker.settings)


@asynccontextmanager
async def world(path: Path) -> AsyncGenerator[World]:
    async with kafka_listener(path) as real:
        topic = await real.broker.create_topic(TOPIC, placement=Placement(partitions=1))
        real.broker.produce(TOPIC, 0, batch_of([b"a"]), acks=Acks.LEADER)
        yield World(real, topic.topic_id.bytes)


def forms(row: Served, topic_id: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the last version of a request first, then others."""
    first, last = row.api.versions
    for version in dict.fromkeys((last, first)):
        for nulls in (False, True):
            yield version, sample(row.api.request, version, topic_id=topic_id, nulls=nulls)


# What a handler answers instead of the code of the table, and why.
OTHER_CODES = {
    # Producers know no error of coordinators, and clients of transactions one of their own.
    ("Produce", "TransactionFenced"): ErrorCode.INVALID_PRODUCER_EPOCH,
    ("TxnOffsetCommit", "TransactionFenced"): ErrorCode.INVALID_PRODUCER_EPOCH,
    ("WriteTxnMarkers", "CoordinatorFenced"): ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    # Its client opens a session at the coordinator, which it looks for after this.
    ("ShareAcknowledge", "NotCoordinator"): ErrorCode.SHARE_SESSION_NOT_FOUND,
}
# (API, call): errors after which the answer is complete all the same, and the code that it has.
COMPLETE = {
    # Another broker lists them.
    ("ListGroups", "groups.all.coordinator.list_groups"): ({"NotCoordinator"}, ErrorCode.NONE),
    # A topic that is deleted meanwhile is left out.
    ("Metadata", "broker.leader_epoch"): (TOPIC_ERRORS, None),
    # What this broker knows is as good as it gets.
    ("ShareGroupHeartbeat", "broker.cluster.find"): (STORAGE_ERRORS, None),
    # The offset of each partition is set by then; only the id of the topic is missing.
    ("AlterShareGroupOffsets", "broker.readable_topic"): (TOPIC_ERRORS, ErrorCode.NONE),
    # There is no other directory, whatever there is of the partition.
    ("AlterReplicaLogDirs", "broker.check_partition"): (ALL, ErrorCode.LOG_DIR_NOT_FOUND),
    # A request for all partitions, in a version whose answer has codes of partitions only.
    ("ElectLeaders", "broker.topics"): (ALL, None),
}


def expected_codes(row: Served, call: str, kind: type[SteleError]) -> set[ErrorCode] | None:
    """Return the codes of which the answer must have one; None if any will do."""
    kinds, code = COMPLETE.get((row.api.name, call), (frozenset[str](), None))
    if kind.__name__ in kinds:
        return None if code is None else {code}
    if (other := OTHER_CODES.get((row.api.name, kind.__name__))) is not None:
        return {other, ERROR_CODES[kind]}
    return ELSEWHERE if kind is BrokerClosing else {ERROR_CODES[kind]}


async def asked(there: World, row: Served, version: int, request: Any) -> set[int]:
    """Send a request and the next one; return the error codes of the first."""
    both = request_frame(request, version, correlation=1) + NEXT
    frames = await there.wire.ask(both, many=2)
    assert len(frames) == 2, "the connection has ended"
    answered, answer = read_response(frames[0], row.api, version)
    following, _ = read_response(frames[1], SERVED[API_VERSIONS_KEY].api, 0)
    assert (answered, following) == (1, 2)
    return codes_of(answer)


@pytest.mark.every(3)
@pytest.mark.parametrize("are_all", [False, pytest.param(True, marks=pytest.mark.long)], ids=["each", "all"])
@pytest.mark.parametrize("row", ROWS)
async def test_every_error_of_every_call_is_answered_and_the_connection_lives(
    row: Served, are_all: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    wrong: list[str] = []
    async with world(tmp_path) as there:
        for number, (version, request) in enumerate(forms(row, there.topic_id)):
            calls = await calls_of(there, row, version, request)
            kinds = leaves() if number == 0 else FEW
            for call, kind in pairs(calls, kinds, are_all=are_all):
                there.faults.arm(call, an_error(kind))
                codes = await asked(there, row, version, request)
                expected = expected_codes(row, call, kind)
                if there.faults.raised and expected is not None and not codes & expected:
                    wrong.append(f"v{version}: {kind.__name__} of {call} is answered with {codes}")
        assert wrong == []
        assert caplog.records == []


@pytest.mark.every(4)
@pytest.mark.parametrize("row", ROWS)
async def test_a_mistake_of_the_broker_is_answered_logged_and_counted(
    row: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong: list[str] = []
    async with world(tmp_path) as there:
        counts = there.real.broker.counts
        for version, request in forms(row, there.topic_id):
            for call in await calls_of(there, row, version, request):
                before = counts.internal_errors
                caplog.clear()
                there.faults.arm(call, KeyError("orders"))
                codes = await asked(there, row, version, request)
                if not there.faults.raised:
                    continue
                logged = [one.getMessage() for one in caplog.records if one.exc_info]
                if ErrorCode.UNKNOWN_SERVER_ERROR not in codes and not nothing_to_name(row, version, request):
                    wrong.append(f"v{version}: {call} is answered with {codes}")
                if counts.internal_errors == before or not logged:
                    wrong.append(f"v{version}: {call} is neither logged nor counted")
        assert wrong == []


NAMES_OF_NO_TOPIC = ("", ".", "a/b", "größe", "x" * 250)


@pytest.mark.every(4)
@pytest.mark.parametrize("row", ROWS)
async def test_a_name_that_no_topic_can_have_is_answered(
    row: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with world(tmp_path) as there:
        for version in dict.fromkeys(reversed(row.api.versions)):
            for name in NAMES_OF_NO_TOPIC:
                await asked(
                    there, row, version, sample(row.api.request, version, topic_id=NO_UUID, topic=name)
                )
        assert caplog.records == []


async def test_share_offsets_of_a_name_that_no_topic_can_have_are_refused_in_its_partitions(
    tmp_path: Path,
) -> None:
    row = SERVED[ALTER_SHARE_GROUP_OFFSETS_API.key]
    async with world(tmp_path) as there:
        coordinator = there.real.groups.of(GROUP).coordinator
        await coordinator.shares.heartbeat(
            ShareHeartbeat(
                group=GROUP,
                member_id="member",
                epoch=0,
                rack_id=None,
                topics=frozenset((TOPIC,)),
                client_id="",
                client_host="",
            )
        )
        coordinator.shares.release_member(GROUP, "member", None)
        await coordinator.shares.heartbeat(
            ShareHeartbeat(
                group=GROUP,
                member_id="member",
                epoch=-1,
                rack_id=None,
                topics=None,
                client_id="",
                client_host="",
            )
        )
        request = sample(row.api.request, 0, topic_id=NO_UUID, topic="a/b")
        (frame,) = await there.wire.ask(request_frame(request, 0), many=1)
        _, answer = read_response(frame, row.api, 0)
        (topic,) = answer.responses
        (partition,) = topic.partitions
        assert (answer.error_code, partition.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)


async def calls_of(there: World, row: Served, version: int, request: Any) -> list[str]:
    """Make the request without an error; return the calls that its handler has made."""
    there.faults.calls.clear()
    there.faults.arm("", None)
    await asked(there, row, version, request)
    return list(there.faults.calls)


def nothing_to_name(row: Served, version: int, request: Any) -> bool:
    """Return whether the request is for everything, in a version without a code for all of it."""
    fields = {one.name for one in fields_of(row.api.response) if version in one.versions}
    arrays = [one.name for one in fields_of(row.api.request) if version in one.nullable]
    return "error_code" not in fields and any(getattr(request, name) is None for name in arrays)
