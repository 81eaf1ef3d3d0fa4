"""A driver as the tests see it: a process, commands with a deadline, records as they are.

The protocol is in README.md. A driver that dies, is silent or says what is no
answer gives a ``DriverFailed`` with what it wrote to stderr; an answer that is an
error is ``Refused``.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

GREETING_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 30.0
# What an op may take unless it is told otherwise, and how much longer a driver may take to say so.
# Long, because a busy machine takes long over a rebalance.
OP_TIMEOUT_MS = 120_000
ANSWER_MARGIN_S = 20.0
_STDERR_SHOWN_BYTES = 4000
_READ_BYTES = 1 << 20

Headers = tuple[tuple[str, bytes | None], ...]
Place = tuple[str, int]
Acks = Literal["0", "1", "all"]
Isolation = Literal["committed", "uncommitted"]


class DriverFailed(Exception):
    """The driver can no longer be used; the message has the last of its stderr."""


class Refused(Exception):
    """The client, or the broker through it, said no. ``error`` is Kafka's name if the client tells it."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One to write (``offset`` -1; ``timestamp`` None leaves it to the client), or one that was read."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = 0
    offset: int = -1
    timestamp: int | None = None
    topic: str | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    state: str
    members: int


def _to_b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _from_b64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _to_json(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = {
        "partition": record.partition,
        "key": _to_b64(record.key),
        "value": _to_b64(record.value),
        "headers": [[name, _to_b64(content)] for name, content in record.headers],
    }
    if record.timestamp is not None:
        told["timestamp"] = record.timestamp
    return told


def _from_json(told: dict[str, Any]) -> Record:
    return Record(
        topic=told.get("topic"),
        partition=told["partition"],
        offset=told["offset"],
        timestamp=told["timestamp"],
        key=_from_b64(told["key"]),
        value=_from_b64(told["value"]),
        headers=tuple((name, _from_b64(content)) for name, content in told["headers"]),
    )


def places_told(told: dict[str, Any]) -> set[Place]:
    places = cast("list[list[Any]]", told["assignment"])
    return {(topic, partition) for topic, partition in places}


class Pending:
    """A command that was sent and is not answered yet."""

    def __init__(self, driver: Driver, number: int, op: str, deadline_s: float) -> None:
        self._driver, self._number, self._op, self._deadline_s = driver, number, op, deadline_s

    def is_answered(self) -> bool:
        """True if ``result`` returns at once."""
        return self._driver.has_line(deadline_s=0.0)

    def result(self) -> Any:
        return self._driver.answer(self._number, self._op, self._deadline_s)


class Driver:
    """A running driver. ``begin`` leaves the answer for later, everything else waits for it."""

    def __init__(self, command: Sequence[str], bootstrap: str, login_file: Path | None = None) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the driver)
        self._process = subprocess.Popen(
            [*command, bootstrap, *([] if login_file is None else [str(login_file)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            # A group of its own: what the driver starts dies with it.
            start_new_session=True,
        )
        self._name = " ".join(command)
        self._unread = bytearray()
        self._last_id = 0
        self._pending = False
        self.has_failed = False
        self.members: set[str] = set()
        greeting = self._read_json(time.monotonic() + GREETING_TIMEOUT_S, "a greeting")
        try:
            self.client = str(greeting["client"])
            self.version = str(greeting["version"])
            self._unsupported = frozenset(cast("list[str]", greeting["unsupported"]))
        except (KeyError, TypeError):
            raise self._failed(f"its greeting is {greeting!r}") from None

    def offers(self, what: str) -> bool:
        """Whether its client has a capability, an op or one of the README's further words."""
        return what not in self._unsupported

    @property
    def is_clean(self) -> bool:
        """True if it can serve another test: it lives, owes no answer and is a member of nothing."""
        return not (self.has_failed or self._pending or self.members) and self._process.poll() is None

    # ── the process ──

    def kill(self) -> None:
        """SIGKILL, to all that it started too: its members say no good-bye."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._release()

    def close(self) -> None:
        """End its input and wait for its end; kill it if that takes too long."""
        if self._process.stdin is None or self._process.stdin.closed:
            return
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self._process.stdin.close()
            self._process.wait(CLOSE_TIMEOUT_S)
        self.kill()

    def _release(self) -> None:
        self.has_failed = True
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _failed(self, why: str) -> DriverFailed:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _STDERR_SHOWN_BYTES))
        said = self._stderr.read().decode(errors="replace")
        code = self._process.poll()
        ended = "" if code is None else f" It ended with {code}."
        self.kill()
        return DriverFailed(f"{self._name}: {why}.{ended} Its stderr:\n{said}")

    # ── lines ──

    def has_line(self, *, deadline_s: float) -> bool:
        """Whether a whole line has come; waits for it until ``deadline_s`` on the monotonic clock.

        Raises:
            DriverFailed: it ended.
        """
        stdout = cast("Any", self._process.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            searched = 0
            while b"\n" not in self._unread[searched:]:
                searched = len(self._unread)
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    return False
                chunk = os.read(stdout.fileno(), _READ_BYTES)
                if not chunk:
                    self._process.wait(CLOSE_TIMEOUT_S)
                    raise self._failed("it ended without an answer")
                self._unread += chunk
        return True

    def _read_json(self, deadline_s: float, waited_for: str) -> dict[str, Any]:
        if not self.has_line(deadline_s=deadline_s):
            raise self._failed(f"{waited_for} did not come in time")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise self._failed(f"it said {bytes(line[:200])!r} instead of {waited_for}")
        return cast("dict[str, Any]", told)

    def begin(self, op: str, **arguments: Any) -> Pending:
        """Send a command and go on; only one may be under way.

        Raises:
            DriverFailed: it does not listen.
        """
        assert not self._pending, "a driver does one command after the other"
        self._last_id += 1
        arguments.setdefault("timeout_ms", OP_TIMEOUT_MS)
        line = json.dumps({"id": self._last_id, "op": op, **arguments}) + "\n"
        try:
            stdin = cast("Any", self._process.stdin)
            stdin.write(line.encode())
            stdin.flush()
        except (OSError, ValueError):
            raise self._failed("it takes no commands") from None
        self._pending = True
        if op == "join":
            self.members.add(arguments["member"])
        timeout_s = arguments["timeout_ms"] / 1000 + ANSWER_MARGIN_S
        return Pending(self, self._last_id, op, time.monotonic() + timeout_s)

    def answer(self, number: int, op: str, deadline_s: float) -> Any:
        """The result of a command that was sent.

        Raises:
            Refused: the answer is an error.
            DriverFailed: there is none.
        """
        told = self._read_json(deadline_s, f"the answer to {op}")
        self._pending = False
        if told.get("id") != number:
            raise self._failed(f"its answer to {op} has another id: {told!r}")
        if "error" in told:
            raise Refused(str(told["error"]), str(told.get("message", "")))
        return told.get("result")

    def call(self, op: str, **arguments: Any) -> Any:
        return self.begin(op, **arguments).result()

    # ── records ──

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: Acks = "all",
        idempotent: bool = False,
        codec: str = "none",
    ) -> list[int]:
        """The offsets as the client tells them; -1 where it does not."""
        told = self.call(
            "produce",
            topic=topic,
            acks=acks,
            idempotent=idempotent,
            codec=codec,
            records=[_to_json(record) for record in records],
        )
        return cast("list[int]", told["offsets"])

    def produce_keyed(self, topic: str, keys: Sequence[bytes]) -> list[int]:
        told = self.call("produce_keyed", topic=topic, keys=[_to_b64(key) for key in keys])
        return cast("list[int]", told["partitions"])

    def fetch(
        self,
        topic: str,
        *,
        offset: int | str = "earliest",
        count: int,
        partition: int = 0,
        isolation: Isolation | None = None,
    ) -> list[Record]:
        """``isolation`` None is the client's default."""
        chosen = {} if isolation is None else {"isolation": isolation}
        told = self.call("fetch", topic=topic, partition=partition, offset=offset, count=count, **chosen)
        return records_of(told)

    def fetch_all(
        self,
        topic: str,
        *,
        partitions: int,
        count: int,
        max_bytes: int | None = None,
        partition_max_bytes: int | None = None,
        answer_max_bytes: int | None = None,
    ) -> list[Record]:
        """From all partitions of the topic at once, in the order they came, within limits in bytes.

        ``max_bytes`` and ``partition_max_bytes`` are those of a fetch; an answer
        beyond ``answer_max_bytes`` is refused by clients that have such a limit.
        """
        limits = {
            "max_bytes": max_bytes,
            "partition_max_bytes": partition_max_bytes,
            "answer_max_bytes": answer_max_bytes,
        }
        told = self.call(
            "fetch",
            topic=topic,
            partitions=list(range(partitions)),
            offset="earliest",
            count=count,
            **{name: limit for name, limit in limits.items() if limit is not None},
        )
        return records_of(told)

    def transact(
        self,
        producer: str,
        transactional_id: str,
        topic: str,
        records: Sequence[Record],
        *,
        end: Literal["commit", "abort", "none"],
        begins: bool = True,
        offset: tuple[str, str, int] | None = None,
    ) -> None:
        """Send records in a transaction, and the ``offset`` of a group (group, topic, offset) in partition 0.

        ``producer`` is the tests' name of the producer, which begins with the transactional id when it
        is first named. ``begins`` False continues a transaction that was left open.
        """
        committed = {} if offset is None else dict(zip(("group", "source", "offset"), offset, strict=True))
        self.call(
            "transact",
            producer=producer,
            transactional_id=transactional_id,
            topic=topic,
            records=[_to_json(record) for record in records],
            begins=begins,
            end=end,
            **committed,
        )

    def offset_at(self, topic: str, at: int | str, *, partition: int = 0) -> int:
        return cast("int", self.call("offsets", topic=topic, partition=partition, at=at)["offset"])

    # ── groups ──

    def join(self, member: str, group: str, topics: Sequence[str], **arguments: Any) -> set[Place]:
        return places_told(self.call("join", member=member, group=group, topics=list(topics), **arguments))

    def begin_assignment(self, member: str, *, poll_ms: int = 200) -> Pending:
        """Let the member poll; ``places_told`` reads the result."""
        return self.begin("assignment", member=member, poll_ms=poll_ms)

    def assignment(self, member: str, *, poll_ms: int = 200) -> set[Place]:
        return places_told(self.begin_assignment(member, poll_ms=poll_ms).result())

    def poll(self, member: str, count: int, *, timeout_ms: int = OP_TIMEOUT_MS) -> list[Record]:
        return records_of(self.call("poll", member=member, count=count, timeout_ms=timeout_ms))

    def commit(self, member: str, offsets: dict[Place, int], metadata: str = "") -> None:
        told = [[topic, partition, offset, metadata] for (topic, partition), offset in offsets.items()]
        self.call("commit", member=member, offsets=told)

    def leave(self, member: str) -> None:
        self.call("leave", member=member)
        self.members.discard(member)

    def committed(self, group: str, topic: str, *, partition: int = 0) -> CommittedOffset:
        told = self.call("committed", group=group, topic=topic, partition=partition)
        return CommittedOffset(offset=told["offset"], metadata=told["metadata"])

    # ── topics and groups as an administrator sees them ──

    def create_topic(self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self.call("create_topic", topic=topic, partitions=partitions, configs=configs or {})

    def describe_topic(self, topic: str) -> TopicDescription:
        told = self.call("describe_topic", topic=topic)
        return TopicDescription(partitions=told["partitions"], configs=told["configs"])

    def alter_topic(self, topic: str, configs: dict[str, str]) -> None:
        self.call("alter_topic", topic=topic, configs=configs)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self.call("add_partitions", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        self.call("delete_topic", topic=topic)

    def list_topics(self) -> list[str]:
        return cast("list[str]", self.call("list_topics")["topics"])

    def delete_records(self, topic: str, *, before_offset: int, partition: int = 0) -> int:
        told = self.call("delete_records", topic=topic, partition=partition, before_offset=before_offset)
        return cast("int", told["log_start_offset"])

    def list_groups(self) -> list[str]:
        return cast("list[str]", self.call("list_groups")["groups"])

    def describe_group(self, group: str) -> GroupDescription:
        told = self.call("describe_group", group=group)
        return GroupDescription(state=told["state"], members=told["members"])

    def delete_group(self, group: str) -> None:
        self.call("delete_group", group=group)


def records_of(told: dict[str, Any]) -> list[Record]:
    """The records of an answer to ``fetch`` or ``poll``."""
    return [_from_json(record) for record in cast("list[dict[str, Any]]", told["records"])]
