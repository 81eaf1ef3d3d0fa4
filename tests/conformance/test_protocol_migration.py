"""A group rolled member by member from the classic protocol to the one in which the broker assigns, and back.

Records flow all the while. Each must be handled, and by one member: the others find it committed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from stele.testing import BrokerProcess

from tests.conformance.driver import Driver, Place, Record, Refused
from tests.conformance.support import MakeTopic, StartDriver, numbered
from tests.support.waiting import eventually

# Their members lose partitions between two calls, too, so a record may come again before its commit.
REBALANCE_IN_BACKGROUND = {"franz-go"}
PARTITIONS = 6
MEMBERS = 3
POLL_MS = 500

pytestmark = pytest.mark.capability("broker-side assignment")


@dataclass
class Ledger:
    """Which records were handled, by partition and offset. ``unsure``: their commits came too late."""

    handled: Counter[tuple[int, int]] = field(default_factory=Counter[tuple[int, int]])
    unsure: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])


class Member:
    """One consumer that polls and commits in a thread. ``roll`` restarts it with the other protocol."""

    def __init__(self, driver: Driver, group: str, topic: str, ledger: Ledger, threads: ThreadPoolExecutor):
        self._driver, self._group, self._topic, self._ledger = driver, group, topic, ledger
        self._threads = threads
        self._stopping = threading.Event()
        self._joined = threading.Event()
        self._life: Future[None]

    @property
    def client(self) -> str:
        return self._driver.client

    def start(self, protocol: str | None) -> None:
        self._stopping.clear()
        self._joined.clear()
        self._life = self._threads.submit(self._live, protocol)

    def await_joined(self) -> None:
        eventually(lambda: self._joined.is_set() or self._life.done(), "the member has joined")
        if self._life.done():
            self._life.result()

    def stop(self) -> None:
        self._stopping.set()
        self._life.result()

    def roll(self, protocol: str | None) -> None:
        self.stop()
        self.start(protocol)
        self.await_joined()

    def _live(self, protocol: str | None) -> None:
        chosen = {} if protocol is None else {"protocol": protocol}
        self._driver.join("me", self._group, [self._topic], **chosen)
        self._joined.set()
        while not self._stopping.is_set():
            try:
                records = self._driver.poll("me", 1000, timeout_ms=POLL_MS)
            except Refused as refused:
                # A join that waits while its group becomes a consumer group is answered so (``LiveMigration``).
                # librdkafka shows the error, and joins again by itself.
                if refused.error != "REBALANCE_IN_PROGRESS":
                    raise
                continue
            self._ledger.handled.update((record.partition, record.offset) for record in records)
            self._commit(records)
        self._driver.leave("me")

    def _commit(self, records: list[Record]) -> None:
        """Commit what was handled; records of partitions that were lost meanwhile are noted as unsure."""
        left: dict[Place, int] = {}
        for record in records:
            left[self._topic, record.partition] = record.offset + 1
        while left:
            try:
                self._driver.commit("me", left)
            except Refused:
                # A rebalance is under way. What the member keeps is committed after it.
                kept = self._driver.assignment("me")
                lost = {partition for topic, partition in left if (topic, partition) not in kept}
                self._ledger.unsure |= {(r.partition, r.offset) for r in records if r.partition in lost}
                left = {place: offset for place, offset in left.items() if place in kept}
            else:
                return


class Flow:
    """Produces chunk after chunk, until it is told to stop and has produced ``at_least`` records."""

    def __init__(self, reference: Driver, topic: str, *, chunk: int, at_least: int) -> None:
        self.produced = 0
        self._reference, self._topic = reference, topic
        self._chunk, self._at_least = chunk, at_least
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set() or self.produced < self._at_least:
            self._reference.produce(
                self._topic, numbered(self._chunk, partitions=PARTITIONS, start=self.produced)
            )
            self.produced += self._chunk

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def members_of(
    start_driver: StartDriver, group: str, topic: str, ledger: Ledger
) -> Generator[tuple[list[Member], ThreadPoolExecutor]]:
    with ThreadPoolExecutor(MEMBERS + 1) as threads:
        members = [Member(start_driver(), group, topic, ledger, threads) for _ in range(MEMBERS)]
        try:
            for member in members:
                member.start(None)
            for member in members:
                member.await_joined()
            yield members, threads
        finally:
            for member in members:
                member.stop()


def roll_there_and_back(
    start_driver: StartDriver,
    reference: Driver,
    stele: BrokerProcess,
    make_topic: MakeTopic,
    group: str,
    *,
    chunk: int,
    at_least: int,
) -> None:
    topic, ledger = make_topic(partitions=PARTITIONS), Ledger()
    flow = Flow(reference, topic, chunk=chunk, at_least=at_least)
    types: list[str] = []
    with members_of(start_driver, group, topic, ledger) as (members, threads):
        flowing = threads.submit(flow.run)
        try:
            for protocol in ("consumer", None):
                for member in members:
                    member.roll(protocol)
                    types.append(type_of(stele, group))
        finally:
            flow.stop()
        flowing.result()
        client = members[0].client
        eventually(lambda: len(ledger.handled) >= flow.produced, "all records are handled")
    assert types == ["consumer"] * 5 + ["classic"]
    each = flow.produced // PARTITIONS
    assert ledger.handled.keys() == {(n, offset) for n in range(PARTITIONS) for offset in range(each)}
    twice = {place for place, times in ledger.handled.items() if times > 1}
    assert twice <= ledger.unsure or client in REBALANCE_IN_BACKGROUND


def type_of(stele: BrokerProcess, group: str) -> str:
    return str(httpx.get(f"{stele.http_url}/v1/groups/{group}").json()["type"])


@pytest.mark.long
def test_a_group_is_rolled_to_the_other_protocol_and_back_while_records_flow(
    start_driver: StartDriver, reference: Driver, stele: BrokerProcess, make_topic: MakeTopic, group: str
) -> None:
    roll_there_and_back(start_driver, reference, stele, make_topic, group, chunk=60, at_least=600)


@pytest.mark.long
def test_the_same_with_100_000_records(
    start_driver: StartDriver, reference: Driver, stele: BrokerProcess, make_topic: MakeTopic, group: str
) -> None:
    roll_there_and_back(start_driver, reference, stele, make_topic, group, chunk=1200, at_least=100_000)
