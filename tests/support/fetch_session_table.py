"""What a broker answers in fetch sessions, as a table: Apache Kafka 4.3.1 gave the answers, and Stele must give them too.

A scenario asks through a ``Reader`` and returns what came back, in a form in which
both brokers can be compared: sessions, topics and sizes have names and counts of
their own instead of ids and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from stele.wire.kafka.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, only_partition, produce, records_in

NAMES = 12
IDS = 16
NO_ID = bytes(16)
# Longer than any test: an answer that comes earlier did not wait for the time.
LONG_MS = 55_000

# Error, session ("-": none, "S": the one in use, "N": another one), and of each partition:
# topic, partition, error, high watermark, log start offset, records.
Seen = tuple[int, str, list[tuple[str, int, int, int, int, int]]]
Outcome = Seen | list[Seen] | list[list[int]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Callable[[Reader], Outcome]
    expected: Outcome


class Reader:
    """Sends requests to one broker, with topics of its own, and returns what it saw."""

    def __init__(self, peer: KafkaPeer, prefix: str) -> None:
        self.peer = peer
        self._prefix = prefix
        self._ids: dict[str, bytes] = {}
        self._labels: dict[bytes, str] = {}
        self._session_id = 0

    # ── topics ──

    def create(self, topic: str, partitions: int = 1, *, label: str | None = None) -> None:
        name = self._prefix + topic
        asked = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        (made,) = self.peer.call(CreateTopicsRequest(topics=[asked]), 7).topics
        assert made.error_code == ErrorCode.NONE, made
        self._ids[label or topic] = made.topic_id
        self._labels[made.topic_id] = label or topic
        self._await(name, lambda topic: not topic.error_code and len(topic.partitions) == partitions)
        # A moment after it has told of them, a broker of Kafka leads them.
        wanted = {topic: dict.fromkeys(range(partitions), 0)}
        while any(one[2] for one in self.fetch(wanted, epoch=-1, session=0)[2]):
            pass

    def delete(self, topic: str) -> None:
        name = self._prefix + topic
        (done,) = self.peer.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5).responses
        assert done.error_code == ErrorCode.NONE, done
        self._await(name, lambda topic: topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _await(self, name: str, is_so: Callable[[Any], bool]) -> None:
        """A broker of Kafka learns from its controller a little later."""
        while True:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            (topic,) = self.peer.call(asked, 9).topics
            if is_so(topic):
                return

    def unknown_id(self, label: str) -> None:
        """Have ``label`` stand for an id that no topic has."""
        self._ids[label] = b"no such topic id"
        self._labels[self._ids[label]] = label

    def put(self, topic: str, *values: bytes, partition: int = 0) -> None:
        request = produce(self._prefix + topic, batch_of(values), partition=partition)
        done = only_partition(self.peer.call(request, 12))
        assert done.error_code == ErrorCode.NONE, done

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        one = DeleteRecordsPartition(partition_index=partition, offset=before)
        asked = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=self._prefix + topic, partitions=[one])], timeout_ms=30_000
        )
        (done,) = self.peer.call(asked, 2).topics[0].partitions
        assert done.error_code == ErrorCode.NONE, done

    @contextmanager
    def another(self) -> Generator[Reader]:
        """The same topics from another connection."""
        with self.peer.again() as peer:
            other = Reader(peer, self._prefix)
            other._ids, other._labels = self._ids, self._labels
            yield other

    def take_session_of(self, reader: Reader) -> None:
        self._session_id = reader._session_id

    # ── fetches ──

    def request(
        self,
        asked: Mapping[str, Mapping[int, int]] | None = None,
        *,
        epoch: int,
        session: int | None = None,
        forget: Mapping[str, tuple[int, ...]] | None = None,
        ids: bool = False,
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
    ) -> FetchRequest:
        """Ask for offsets by topic and partition, in the session in use if ``session`` is None."""

        def topic_of(label: str) -> dict[str, Any]:
            return {"topic_id": self._ids[label]} if ids else {"topic": self._prefix + label}

        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self._session_id if session is None else session,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    **topic_of(label),
                    partitions=[
                        FetchPartition(
                            partition=index,
                            fetch_offset=offset,
                            partition_max_bytes=partition_max_bytes,
                            current_leader_epoch=leader_epoch,
                        )
                        for index, offset in offsets.items()
                    ],
                )
                for label, offsets in (asked or {}).items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(**topic_of(label), partitions=list(indexes))
                for label, indexes in (forget or {}).items()
            ],
        )

    def fetch(self, asked: Mapping[str, Mapping[int, int]] | None = None, **how: Any) -> Seen:
        version = IDS if how.get("ids") else NAMES
        return self.see(self.peer.call(self.request(asked, **how), version))

    def begin(self, asked: Mapping[str, Mapping[int, int]], **how: Any) -> Seen:
        """Begin a session, which is the one in use from now on."""
        version = IDS if how.get("ids") else NAMES
        answer = self.peer.call(self.request(asked, epoch=0, **how), version)
        self._session_id = answer.session_id
        return self.see(answer)

    def _label(self, topic: Any) -> str:
        if topic.topic_id != NO_ID:
            return self._labels[topic.topic_id]
        return topic.topic.removeprefix(self._prefix)

    def see(self, answer: Any) -> Seen:
        session = "-" if not answer.session_id else "S" if answer.session_id == self._session_id else "N"
        return (
            answer.error_code,
            session,
            [
                (
                    self._label(topic),
                    one.partition_index,
                    one.error_code,
                    one.high_watermark,
                    one.log_start_offset,
                    len(records_in(bytes(one.records or b""))),
                )
                for topic in answer.responses
                for one in topic.partitions
            ],
        )


# ── scenarios ──


def _idle(reader: Reader) -> Outcome:
    reader.create("a", 3)
    reader.put("a", b"1", b"2", partition=1)
    return [
        reader.begin({"a": {0: 0, 1: 0, 2: 0}}),
        # The client goes on behind what it got; the others are as they were.
        reader.fetch({"a": {1: 2}}, epoch=1),
        reader.fetch(epoch=2),
    ]


def _news(reader: Reader) -> Outcome:
    reader.create("a", 3)
    seen = [reader.begin({"a": {0: 0, 1: 0, 2: 0}})]
    reader.put("a", b"1", partition=2)
    seen.append(reader.fetch(epoch=1))
    # Nobody said that it was consumed: it comes again.
    seen.append(reader.fetch(epoch=2))
    seen.append(reader.fetch({"a": {2: 1}}, epoch=3))
    return seen


def _log_start(reader: Reader) -> Outcome:
    reader.create("a", 2)
    reader.put("a", b"1", b"2", b"3")
    seen = [reader.begin({"a": {0: 3, 1: 0}})]
    seen.append(reader.fetch(epoch=1))
    reader.delete_records("a", 2)
    seen.append(reader.fetch(epoch=2))
    seen.append(reader.fetch(epoch=3))
    return seen


def _errors(reader: Reader) -> Outcome:
    reader.create("a", 1)
    seen = [reader.begin({"a": {0: 7}})]
    # An error is told each time, until there is none; then the partition is news.
    seen.append(reader.fetch(epoch=1))
    seen.append(reader.fetch({"a": {0: 0}}, epoch=2))
    seen.append(reader.fetch(epoch=3))
    return seen


def _unknown_names(reader: Reader) -> Outcome:
    reader.create("a", 1)
    seen = [reader.begin({"a": {0: 0, 5: 0}, "b": {0: 0}, "b/?": {0: 0}})]
    seen.append(reader.fetch(epoch=1))
    reader.create("b", 1)
    seen.append(reader.fetch(epoch=2))
    seen.append(reader.fetch(epoch=3))
    return seen


def _unknown_ids(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.unknown_id("x")
    return [
        reader.begin({"a": {0: 0}, "x": {0: 0}}, ids=True),
        reader.fetch(epoch=1, ids=True),
        reader.fetch(epoch=2, ids=True, forget={"x": (0,)}),
        reader.fetch(epoch=3, ids=True),
    ]


def _deleted(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.create("b", 1)
    reader.put("a", b"1")
    seen = [reader.begin({"a": {0: 1}, "b": {0: 0}}), reader.fetch(epoch=1)]
    reader.delete("a")
    seen.append(reader.fetch(epoch=2))
    reader.create("a", 1)
    reader.put("a", b"1")
    reader.put("a", b"2")
    seen.append(reader.fetch(epoch=3))
    return seen


def _deleted_ids(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.create("b", 1)
    seen = [reader.begin({"a": {0: 0}, "b": {0: 0}}, ids=True), reader.fetch(epoch=1, ids=True)]
    reader.delete("a")
    seen.append(reader.fetch(epoch=2, ids=True))
    reader.create("a", 1, label="a again")
    seen.append(reader.fetch(epoch=3, ids=True))
    seen.append(reader.fetch({"a again": {0: 0}}, forget={"a": (0,)}, epoch=4, ids=True))
    return seen


def _forgotten(reader: Reader) -> Outcome:
    reader.create("a", 2)
    seen = [reader.begin({"a": {0: 0, 1: 0}})]
    reader.put("a", b"1")
    reader.put("a", b"1", partition=1)
    seen.append(reader.fetch(epoch=1, forget={"a": (0, 9)}))
    seen.append(reader.fetch({"a": {0: 1, 1: 1}}, epoch=2))
    # Named and forgotten in one request: it is not in the session.
    seen.append(reader.fetch({"a": {0: 0}}, forget={"a": (0,)}, epoch=3))
    return seen


def _emptied(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.put("a", b"1")
    return [
        reader.begin({"a": {0: 0}}),
        reader.fetch(epoch=1, forget={"a": (0,)}),
        reader.fetch(epoch=2),
    ]


def _emptied_but_named(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.put("a", b"1")
    return [reader.begin({"a": {0: 0}}), reader.fetch({"a": {0: 0}}, epoch=1, forget={"a": (0,)})]


def _epochs(reader: Reader) -> Outcome:
    reader.create("a", 1)
    return [
        reader.begin({"a": {0: 0}}),
        reader.fetch(epoch=2),
        reader.fetch(epoch=1),
        reader.fetch(epoch=1),
        reader.fetch(epoch=-2),
        reader.fetch(epoch=2),
        reader.fetch(epoch=1, session=0),
        reader.fetch(epoch=2**31 - 1),
    ]


def _ends(reader: Reader) -> Outcome:
    reader.create("a", 1)
    return [
        reader.begin({"a": {0: 0}}),
        reader.fetch({"a": {0: 0}}, epoch=-1),
        reader.fetch(epoch=1),
        reader.begin({"a": {0: 0}}),
        # Another one instead of it.
        reader.fetch({"a": {0: 0}}, epoch=0),
        reader.fetch(epoch=1),
        reader.fetch({}, epoch=-1),
    ]


def _nothing(reader: Reader) -> Outcome:
    return [reader.begin({}), reader.fetch(epoch=1), reader.fetch(epoch=2)]


def _names_and_ids(reader: Reader) -> Outcome:
    reader.create("a", 1)
    return [
        reader.begin({"a": {0: 0}}),
        reader.fetch(epoch=1, ids=True),
        reader.fetch(epoch=1),
        reader.begin({"a": {0: 0}}, ids=True),
        reader.fetch(epoch=1),
        reader.fetch(epoch=1, ids=True),
    ]


def _leader_epochs(reader: Reader) -> Outcome:
    reader.create("a", 2)
    return [
        reader.begin({"a": {0: 0, 1: 0}}),
        reader.fetch({"a": {0: 0}}, epoch=1, leader_epoch=1000, wait_ms=LONG_MS),
        reader.fetch(epoch=2, wait_ms=LONG_MS),
        reader.fetch({"a": {0: 0}}, epoch=3),
    ]


def _in_turn(reader: Reader) -> Outcome:
    """Responses with room for one batch return all partitions in turn."""
    reader.create("a", 3)
    for partition in range(3):
        for value in (b"1", b"2", b"3"):
            reader.put("a", value, partition=partition)
    offsets = dict.fromkeys(range(3), 0)
    answer = reader.begin({"a": offsets}, max_bytes=1)
    brought: list[list[int]] = []
    for epoch in range(1, 8):
        changed: dict[int, int] = {}
        for _, partition, _, _, _, records in answer[2]:
            if records:
                offsets[partition] += records
                changed[partition] = offsets[partition]
        brought.append(sorted(changed))
        answer = reader.fetch({"a": changed}, epoch=epoch, max_bytes=1)
    return brought


def _waits(reader: Reader) -> Outcome:
    """A round without changes waits, and an append to any partition ends the wait."""
    reader.create("a", 2)
    reader.begin({"a": {0: 0, 1: 0}})
    reader.fetch(epoch=1)
    reader.peer.post(reader.request(epoch=2, wait_ms=LONG_MS), NAMES)
    with reader.another() as other:
        other.put("a", b"1", partition=1)
    _, answer = reader.peer.next_answer()
    return reader.see(answer)


def _waits_beside_unknown(reader: Reader) -> Outcome:
    """A partition that does not exist does not cut a wait short."""
    reader.create("a", 1)
    reader.begin({"a": {0: 0}, "b": {0: 0}})
    reader.peer.post(reader.request(epoch=1, wait_ms=LONG_MS), NAMES)
    with reader.another() as other:
        other.put("a", b"1")
    _, answer = reader.peer.next_answer()
    return reader.see(answer)


def _unknown_alone(reader: Reader) -> Outcome:
    """If no partition can be waited for, the response comes at once."""
    return [
        reader.begin({"b": {0: 0}}, wait_ms=LONG_MS),
        reader.fetch(epoch=1, wait_ms=LONG_MS),
    ]


def _deleted_while_waiting(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.create("b", 1)
    reader.begin({"a": {0: 0}, "b": {0: 0}})
    reader.fetch(epoch=1)
    reader.peer.post(reader.request(epoch=2, wait_ms=LONG_MS), NAMES)
    with reader.another() as other:
        other.delete("a")
    _, answer = reader.peer.next_answer()
    return reader.see(answer)


def _named_twice(reader: Reader) -> Outcome:
    reader.create("a", 1)
    reader.put("a", b"1")
    request = reader.request({"a": {0: 0}}, epoch=0)
    request.topics = [*request.topics, *reader.request({"a": {0: 1}}, epoch=0).topics]
    return reader.see(reader.peer.call(request, NAMES))


def _superseded(reader: Reader) -> Outcome:
    """Two rounds at once on two connections: the first gets an error."""
    reader.create("a", 1)
    reader.begin({"a": {0: 0}})
    reader.fetch(epoch=1)
    reader.peer.post(reader.request(epoch=2, wait_ms=LONG_MS), NAMES)
    with reader.another() as other:
        other.take_session_of(reader)
        while (second := other.fetch(epoch=3))[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
            pass
        other.put("a", b"1")
    _, answer = reader.peer.next_answer()
    return [second, reader.see(answer)]


SCENARIOS: list[Scenario] = [
    Scenario(
        "idle",
        _idle,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("a", 1, 0, 2, 0, 2), ("a", 2, 0, 0, 0, 0)]),
            (0, "S", []),
            (0, "S", []),
        ],
    ),
    Scenario(
        "news",
        _news,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("a", 1, 0, 0, 0, 0), ("a", 2, 0, 0, 0, 0)]),
            (0, "S", [("a", 2, 0, 1, 0, 1)]),
            (0, "S", [("a", 2, 0, 1, 0, 1)]),
            (0, "S", []),
        ],
    ),
    Scenario(
        "log start",
        _log_start,
        [
            (0, "S", [("a", 0, 0, 3, 0, 0), ("a", 1, 0, 0, 0, 0)]),
            (0, "S", []),
            (0, "S", [("a", 0, 0, 3, 2, 0)]),
            (0, "S", []),
        ],
    ),
    Scenario(
        "errors",
        _errors,
        [
            (0, "S", [("a", 0, 1, -1, -1, 0)]),
            (0, "S", [("a", 0, 1, -1, -1, 0)]),
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (0, "S", []),
        ],
    ),
    Scenario(
        "unknown names",
        _unknown_names,
        [
            (
                0,
                "S",
                [
                    ("a", 0, 0, 0, 0, 0),
                    ("a", 5, 3, -1, -1, 0),
                    ("b", 0, 3, -1, -1, 0),
                    ("b/?", 0, 3, -1, -1, 0),
                ],
            ),
            (0, "S", [("a", 5, 3, -1, -1, 0), ("b", 0, 3, -1, -1, 0), ("b/?", 0, 3, -1, -1, 0)]),
            (0, "S", [("b", 0, 0, 0, 0, 0), ("a", 5, 3, -1, -1, 0), ("b/?", 0, 3, -1, -1, 0)]),
            (0, "S", [("a", 5, 3, -1, -1, 0), ("b/?", 0, 3, -1, -1, 0)]),
        ],
    ),
    Scenario(
        "unknown ids",
        _unknown_ids,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("x", 0, 100, -1, -1, 0)]),
            (0, "S", [("x", 0, 100, -1, -1, 0)]),
            (0, "S", []),
            (0, "S", []),
        ],
    ),
    Scenario(
        "deleted",
        _deleted,
        [
            (0, "S", [("a", 0, 0, 1, 0, 0), ("b", 0, 0, 0, 0, 0)]),
            (0, "S", []),
            (0, "S", [("a", 0, 3, -1, -1, 0)]),
            (0, "S", [("a", 0, 0, 2, 0, 1)]),
        ],
    ),
    Scenario(
        "deleted ids",
        _deleted_ids,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("b", 0, 0, 0, 0, 0)]),
            (0, "S", []),
            (0, "S", [("a", 0, 3, -1, -1, 0)]),
            (0, "S", [("a", 0, 103, -1, -1, 0)]),
            (0, "S", [("a again", 0, 0, 0, 0, 0)]),
        ],
    ),
    Scenario(
        "forgotten",
        _forgotten,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("a", 1, 0, 0, 0, 0)]),
            (0, "S", [("a", 1, 0, 1, 0, 1)]),
            (0, "S", [("a", 0, 0, 1, 0, 0)]),
            (0, "S", []),
        ],
    ),
    Scenario("emptied", _emptied, [(0, "S", [("a", 0, 0, 1, 0, 1)]), (0, "-", []), (70, "-", [])]),
    Scenario(
        "emptied but named",
        _emptied_but_named,
        [(0, "S", [("a", 0, 0, 1, 0, 1)]), (0, "-", [("a", 0, 0, 1, 0, 1)])],
    ),
    Scenario(
        "epochs",
        _epochs,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (71, "-", []),
            (0, "S", []),
            (71, "-", []),
            (71, "-", []),
            (0, "S", []),
            (70, "-", []),
            (71, "-", []),
        ],
    ),
    Scenario(
        "ends",
        _ends,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (0, "-", [("a", 0, 0, 0, 0, 0)]),
            (70, "-", []),
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (0, "N", [("a", 0, 0, 0, 0, 0)]),
            (70, "-", []),
            (0, "-", []),
        ],
    ),
    Scenario("nothing", _nothing, [(0, "S", []), (0, "-", []), (70, "-", [])]),
    Scenario(
        "names and ids",
        _names_and_ids,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (106, "-", []),
            (0, "S", []),
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
            (106, "-", []),
            (0, "S", []),
        ],
    ),
    Scenario(
        "leader epochs",
        _leader_epochs,
        [
            (0, "S", [("a", 0, 0, 0, 0, 0), ("a", 1, 0, 0, 0, 0)]),
            (0, "S", [("a", 0, 75, -1, -1, 0)]),
            (0, "S", [("a", 0, 75, -1, -1, 0)]),
            (0, "S", [("a", 0, 0, 0, 0, 0)]),
        ],
    ),
    Scenario("in turn", _in_turn, [[0], [0], [1], [2], [0], [1], [2]]),
    Scenario("waits", _waits, (0, "S", [("a", 1, 0, 1, 0, 1)])),
    Scenario(
        "waits beside unknown",
        _waits_beside_unknown,
        (0, "S", [("a", 0, 0, 1, 0, 1), ("b", 0, 3, -1, -1, 0)]),
    ),
    Scenario(
        "unknown alone",
        _unknown_alone,
        [(0, "S", [("b", 0, 3, -1, -1, 0)]), (0, "S", [("b", 0, 3, -1, -1, 0)])],
    ),
    Scenario("deleted while waiting", _deleted_while_waiting, (0, "S", [("a", 0, 3, -1, -1, 0)])),
    Scenario("named twice", _named_twice, (0, "N", [("a", 0, 0, 1, 0, 0)])),
    Scenario("superseded", _superseded, [(0, "S", []), (71, "S", [])]),
]
