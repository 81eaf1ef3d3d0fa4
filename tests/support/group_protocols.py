"""Groups through the HTTP and the binary listener behind one interface, as plain requests and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote

import httpx
from stele.broker_process import BrokerProcess
from stele.wire import messages as m
from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode

from .binary_peer import Peer

TIMEOUT_S = 60.0


class RefusedError(Exception):
    """An error answer; ``code`` is the same number over every protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = ErrorCode(code)
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    generation: int
    assigned: frozenset[tuple[str, int]]
    is_rebalancing: bool


# topic, partition, offset, value
Handled = tuple[str, int, int, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    lease: str | None
    records: list[Handled]
    deliveries: dict[tuple[str, int], int]
    skipped: list[tuple[str, int, int, int]]


class GroupProtocol(Protocol):
    """``owner`` is (group, member id, generation, topic, partition)."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def join(
        self, group: str, *topics: str, member_id: str = "", session_timeout_ms: int = 10_000
    ) -> Member: ...
    def heartbeat(self, group: str, member: Member) -> Member: ...
    def leave(self, group: str, member_id: str) -> None: ...
    def claim(self, group: str, member: Member, topic: str, partition: int) -> None: ...
    def release(self, group: str, member: Member, topic: str, partition: int) -> None: ...
    def commit(self, group: str, member: Member, topic: str, partition: int, offset: int) -> None: ...
    def committed(self, group: str, topic: str, partition: int) -> int | None: ...
    def read(
        self, group: str, member: Member, topic: str, partition: int, offset: int, *, wait_ms: int = 0
    ) -> list[int]:
        """The offsets read as the owner."""
        ...

    def poll(self, group: str, *topics: str, **options: Any) -> Polled: ...
    def ack(self, group: str, lease: str) -> None: ...
    def nack(self, group: str, lease: str) -> None: ...
    def extend(self, group: str, lease: str, lease_ms: int) -> None: ...


class HttpProtocol:
    def __init__(self, broker: BrokerProcess) -> None:
        self._client = httpx.Client(base_url=broker.http_url, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def _ask(self, method: str, path: str, body: object = None, **params: Any) -> Any:
        answer = self._client.request(method, path, json=body, params=params)
        if answer.status_code >= 400:
            problem = answer.json()
            assert answer.headers["content-type"] == "application/problem+json"
            raise RefusedError(problem["kafka_code"], problem["detail"])
        return answer.json() if answer.content else None

    @staticmethod
    def _group(group: str, *parts: str) -> str:
        return "/".join(("/v1/groups", quote(group, safe=""), *parts))

    @staticmethod
    def _member(answer: Any) -> Member:
        return Member(
            member_id=answer["member_id"],
            generation=answer["generation"],
            assigned=frozenset((one["topic"], p) for one in answer["assignment"] for p in one["partitions"]),
            is_rebalancing=answer["rebalancing"],
        )

    def join(self, group: str, *topics: str, member_id: str = "", session_timeout_ms: int = 10_000) -> Member:
        body = {"topics": topics, "member_id": member_id, "session_timeout_ms": session_timeout_ms}
        return self._member(self._ask("POST", self._group(group, "members"), body))

    def heartbeat(self, group: str, member: Member) -> Member:
        path = self._group(group, "members", quote(member.member_id, safe=""), "heartbeat")
        return self._member(self._ask("POST", path, {"generation": member.generation}))

    def leave(self, group: str, member_id: str) -> None:
        self._ask("DELETE", self._group(group, "members", quote(member_id, safe="")))

    def _partition(self, group: str, topic: str, partition: int, what: str) -> str:
        return self._group(group, "partitions", topic, str(partition), what)

    @staticmethod
    def _who(member: Member) -> dict[str, Any]:
        return {"member_id": member.member_id, "generation": member.generation}

    def claim(self, group: str, member: Member, topic: str, partition: int) -> None:
        self._ask("PUT", self._partition(group, topic, partition, "owner"), self._who(member))

    def release(self, group: str, member: Member, topic: str, partition: int) -> None:
        self._ask("DELETE", self._partition(group, topic, partition, "owner"), self._who(member))

    def commit(self, group: str, member: Member, topic: str, partition: int, offset: int) -> None:
        body = {**self._who(member), "offset": offset}
        self._ask("PUT", self._partition(group, topic, partition, "offset"), body)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        offset: int | None = self._ask("GET", self._partition(group, topic, partition, "offset"))["offset"]
        return offset

    def read(
        self, group: str, member: Member, topic: str, partition: int, offset: int, *, wait_ms: int = 0
    ) -> list[int]:
        query = {**self._who(member), "group": group, "from": offset, "wait_ms": wait_ms}
        answer = self._ask("GET", f"/v1/topics/{topic}/partitions/{partition}/records", **query)
        return [record["offset"] for record in answer["records"]]

    def poll(self, group: str, *topics: str, **options: Any) -> Polled:
        answer = self._ask("POST", self._group(group, "poll"), {"topics": topics, **options})
        return Polled(
            lease=answer["lease"],
            records=[
                (r["topic"], r["partition"], r["offset"], r["value"].encode()) for r in answer["records"]
            ],
            deliveries={(p["topic"], p["partition"]): p["deliveries"] for p in answer["partitions"]},
            skipped=[(s["topic"], s["partition"], s["offset"], s["next_offset"]) for s in answer["skipped"]],
        )

    def ack(self, group: str, lease: str) -> None:
        self._ask("POST", self._group(group, "ack"), {"lease": lease})

    def nack(self, group: str, lease: str) -> None:
        self._ask("POST", self._group(group, "nack"), {"lease": lease})

    def extend(self, group: str, lease: str, lease_ms: int) -> None:
        self._ask("POST", self._group(group, "extend"), {"lease": lease, "lease_ms": lease_ms})


class BinaryProtocol:
    def __init__(self, broker: BrokerProcess) -> None:
        self._peer = Peer(broker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._peer.close()

    def _ask(self, request: m.Request) -> Any:
        answer = self._peer.call(request)
        if isinstance(answer, m.ErrorResponse):
            assert answer.response_type == request.TYPE + 1
            raise RefusedError(answer.code, answer.message)
        return answer

    @staticmethod
    def _member(answer: m.JoinGroupResponse | m.HeartbeatResponse) -> Member:
        return Member(
            member_id=answer.member_id,
            generation=answer.generation,
            assigned=frozenset((topic, p) for topic, partitions in answer.assignment for p in partitions),
            is_rebalancing=answer.is_rebalancing,
        )

    def join(self, group: str, *topics: str, member_id: str = "", session_timeout_ms: int = 10_000) -> Member:
        request = m.JoinGroupRequest(
            group=group, topics=topics, member_id=member_id, session_timeout_ms=session_timeout_ms
        )
        return self._member(self._ask(request))

    def heartbeat(self, group: str, member: Member) -> Member:
        request = m.HeartbeatRequest(group=group, member_id=member.member_id, generation=member.generation)
        return self._member(self._ask(request))

    def leave(self, group: str, member_id: str) -> None:
        self._ask(m.LeaveGroupRequest(group=group, member_id=member_id))

    @staticmethod
    def _owner(group: str, member: Member, topic: str, partition: int) -> dict[str, Any]:
        return {
            "group": group,
            "member_id": member.member_id,
            "generation": member.generation,
            "topic": topic,
            "partition": partition,
        }

    def claim(self, group: str, member: Member, topic: str, partition: int) -> None:
        self._ask(m.ClaimRequest(**self._owner(group, member, topic, partition)))

    def release(self, group: str, member: Member, topic: str, partition: int) -> None:
        self._ask(m.ReleaseRequest(**self._owner(group, member, topic, partition)))

    def commit(self, group: str, member: Member, topic: str, partition: int, offset: int) -> None:
        self._ask(m.CommitRequest(**self._owner(group, member, topic, partition), offset=offset))

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        offset: int = self._ask(m.CommittedRequest(group=group, topic=topic, partition=partition)).offset
        return None if offset == -1 else offset

    def read(
        self, group: str, member: Member, topic: str, partition: int, offset: int, *, wait_ms: int = 0
    ) -> list[int]:
        request = m.OwnerFetchRequest(
            **self._owner(group, member, topic, partition), offset=offset, max_wait_ms=wait_ms
        )
        return [one for one, _ in _values(self._ask(request).batches, offset)]

    def poll(self, group: str, *topics: str, **options: Any) -> Polled:
        names = {"wait_ms": "max_wait_ms", "from": "start"}
        renamed = {names.get(name, name): value for name, value in options.items()}
        answer = self._ask(m.PollRequest(group=group, topics=topics, **renamed))
        return Polled(
            lease=answer.lease,
            records=[
                (p.topic, p.partition, offset, value)
                for p in answer.partitions
                for offset, value in _values(p.batches, p.offset)
                if offset < p.next_offset
            ],
            deliveries={(p.topic, p.partition): p.deliveries for p in answer.partitions},
            skipped=[(s.topic, s.partition, s.offset, s.next_offset) for s in answer.skipped],
        )

    def ack(self, group: str, lease: str) -> None:
        self._ask(m.AckRequest(group=group, lease=lease))

    def nack(self, group: str, lease: str) -> None:
        self._ask(m.NackRequest(group=group, lease=lease))

    def extend(self, group: str, lease: str, lease_ms: int) -> None:
        self._ask(m.ExtendRequest(group=group, lease=lease, lease_ms=lease_ms))


def _values(batches: bytes, offset: int) -> list[tuple[int, bytes | None]]:
    values: list[tuple[int, bytes | None]] = []
    position = 0
    while position < len(batches):
        header = rb.check_batch(batches, position)
        values += [(r.offset, r.value) for r in rb.decode_records(batches, header) if r.offset >= offset]
        position += header.size
    return values
