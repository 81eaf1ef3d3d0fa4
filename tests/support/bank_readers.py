"""Readers of committed records that hold each moment of the bank against the rule of all or nothing.

A reader asks for the end of every partition, three times: its last stable offset, its high watermark, and its
last stable offset again. All markers of a transaction are appended in one turn of the broker. So of a
transfer that has a record before the first ends

- every marker is before the high watermarks, or behind a batch of another producer that waits for its sync, and
- every record is before the second ends, unless an earlier transaction that is still open holds its
  partition back.

The second exception can be told from a mistake only by looking at the log, so such records are kept as
``Withheld`` for ``tests.support.bank_audit``.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from stele import Client
from stele.errors import SteleClientError
from stele.records import TopicPartition

from tests.support.bank import PLACES, TOTAL, place_of

_PAUSE_S = 0.02
_TIMEOUT_S = 60.0

Ends = Mapping[TopicPartition, int]


class Entry(NamedTuple):
    place: TopicPartition
    offset: int
    amount: int


class Withheld(NamedTuple):
    """A record of a committed transfer that a reader was not given at ``stable_offset``."""

    transfer: str
    place: TopicPartition
    stable_offset: int
    high_watermark: int


class View:
    """What one reader has of all transfers."""

    def __init__(self) -> None:
        self.transfers: dict[str, dict[int, Entry]] = {}
        self.withheld: set[Withheld] = set()
        # Moments at which all transfers were whole, and the balances added up.
        self.whole_moments = 0
        self._amounts: dict[str, Mapping[str, int]] = {}
        # Transfers of which not all records were before the ends of every check so far.
        self._unsettled: set[str] = set()
        self._settled_total = 0

    def take(self, place: TopicPartition, offset: int, value: bytes | None) -> None:
        assert value is not None
        entry = json.loads(value)
        name, account = entry["transfer"], entry["account"]
        entries = self.transfers.setdefault(name, {})
        assert account not in entries, f"{name} is there twice: {entries[account]} and {place} {offset}"
        assert place == place_of(account), (name, account, place)
        entries[account] = Entry(place, offset, entry["amounts"][str(account)])
        assert self._amounts.setdefault(name, entry["amounts"]) == entry["amounts"]
        self._unsettled.add(name)

    def check(self, first: Ends, high_watermarks: Ends, second: Ends) -> None:
        """Check a moment up to whose ``second`` ends everything was taken."""
        is_whole = True
        balances = self._settled_total
        for name in list(self._unsettled):
            entries = self.transfers[name]
            visible = {a: entry for a, entry in entries.items() if entry.offset < second[entry.place]}
            balances += sum(entry.amount for entry in visible.values())
            missing = [int(account) for account in self._amounts[name] if int(account) not in visible]
            is_whole = is_whole and (not missing or not visible)
            if any(entry.offset < first[entry.place] for entry in visible.values()):
                for account in missing:
                    place = place_of(account)
                    self.withheld.add(Withheld(name, place, second[place], high_watermarks[place]))
            if not missing:
                self._unsettled.discard(name)
                self._settled_total += sum(entry.amount for entry in entries.values())
        if is_whole and second[PLACES[0]]:
            self.whole_moments += 1
            assert balances == TOTAL, f"the balances add up to {balances}"

    @property
    def balances(self) -> int:
        return sum(entry.amount for entries in self.transfers.values() for entry in entries.values())


class Unavailable(Exception):
    """The broker is down; the moment is tried again."""


class Reader(threading.Thread, ABC):
    """Reads moment after moment until ``finish``."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.view = View()
        self.moments = 0
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self._is_given_up = threading.Event()

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._moment()
                self._is_over.wait(_PAUSE_S)
            # What was committed before ``finish``.
            while not self._moment() and not self._is_given_up.is_set():
                pass
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.close()

    def _moment(self) -> bool:
        try:
            first, high_watermarks, second = self.ends(), self.ends(is_committed=False), self.ends()
            self.read_up_to(second)
        except Unavailable:
            return False
        self.view.check(first, high_watermarks, second)
        self.moments += 1
        return True

    def check(self) -> None:
        """Fail if it has found a mistake."""
        assert self.failure is None, f"{self.name}: {self.failure!r}"

    def finish(self) -> None:
        """Read to the end, and check."""
        self._is_over.set()
        self.join()
        self.check()

    def stop(self) -> None:
        """End as soon as possible."""
        self._is_given_up.set()
        self._is_over.set()
        if self.is_alive():
            self.join()

    @abstractmethod
    def ends(self, *, is_committed: bool = True) -> Ends:
        """Return the end of each partition for readers of committed, or of all records. Raises ``Unavailable``."""

    @abstractmethod
    def read_up_to(self, ends: Ends) -> None:
        """Give the view all records before ``ends``, and maybe some after. Raises ``Unavailable``."""

    @abstractmethod
    def close(self) -> None: ...


class SteleReader(Reader):
    """Over HTTP or the binary protocol, by the URL."""

    def __init__(self, url: str) -> None:
        super().__init__(url.partition(":")[0])
        self._client = Client(url, timeout_s=10)
        self._positions = dict.fromkeys(PLACES, 0)

    def ends(self, *, is_committed: bool = True) -> Ends:
        isolation = "read_committed" if is_committed else "read_uncommitted"
        try:
            return {place: self._client.list_offset(*place, isolation=isolation) or 0 for place in PLACES}
        except SteleClientError as error:
            raise _translated(error) from error

    def read_up_to(self, ends: Ends) -> None:
        for place, end in ends.items():
            while self._positions[place] < end:
                offset = self._positions[place]
                try:
                    page = self._client.fetch(*place, offset)
                except SteleClientError as error:
                    raise _translated(error) from error
                for record in page.records:
                    self.view.take(place, record.offset, record.value)
                assert page.next_offset > offset, f"{place} does not go on at {offset}, before {end}"
                self._positions[place] = page.next_offset

    def close(self) -> None:
        self._client.close()


def _translated(error: SteleClientError) -> Exception:
    return Unavailable() if error.retriable else error


class KafkaReader(Reader):
    """confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__("kafka")
        self._common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
        }
        self._admin = AdminClient(self._common)
        self._consumer = confluent_kafka.Consumer(
            {
                **self._common,
                "group.id": "readers",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(*place, 0) for place in PLACES])
        self._positions = dict.fromkeys(PLACES, 0)

    def ends(self, *, is_committed: bool = True) -> Ends:
        level = confluent_kafka.IsolationLevel
        latest = OffsetSpec.latest()
        assert latest is not None
        partitions: dict[confluent_kafka.TopicPartition, OffsetSpec] = {
            confluent_kafka.TopicPartition(*place): latest for place in PLACES
        }
        admin: Any = self._admin
        futures = admin.list_offsets(
            partitions,
            isolation_level=level.READ_COMMITTED if is_committed else level.READ_UNCOMMITTED,
            request_timeout=_TIMEOUT_S,
        )
        try:
            return {
                TopicPartition(found.topic, found.partition): future.result().offset
                for found, future in futures.items()
            }
        except confluent_kafka.KafkaException as error:
            # It asks with the leader epochs that it knows, which rise when the broker was killed.
            self._admin = AdminClient(self._common)
            raise Unavailable from error

    def read_up_to(self, ends: Ends) -> None:
        give_up_s = time.monotonic() + _TIMEOUT_S
        while any(self._positions[place] < end for place, end in ends.items()):
            messages = self._consumer.consume(1000, 0.1)
            for message in messages:
                self._take(message)
            if messages:
                give_up_s = time.monotonic() + _TIMEOUT_S
            assert time.monotonic() < give_up_s, f"the reader is at {self._positions}, before {ends}"

    def _take(self, message: confluent_kafka.Message) -> None:
        error, topic, partition, offset = (
            message.error(),
            message.topic(),
            message.partition(),
            message.offset(),
        )
        if error is not None and error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
            # The library connects again.
            assert error.retriable() or error.code() in _DOWN, error
            return
        assert topic is not None
        assert partition is not None
        assert offset is not None
        place = TopicPartition(topic, partition)
        if error is None:
            self.view.take(place, offset, message.value())
            offset += 1
        self._positions[place] = max(self._positions[place], offset)

    def close(self) -> None:
        self._consumer.close()


_DOWN = {confluent_kafka.KafkaError._ALL_BROKERS_DOWN, confluent_kafka.KafkaError._TRANSPORT}
