"""The fast path of a produce over HTTP gives the same responses and the same logs as the application."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp, Message, Scope

from app.api.direct_produce import BODY_BYTES_MAX, DirectProduce
from app.api.http.traffic import HttpTraffic
from app.broker.broker import Broker
from app.broker.placement import Placement
from app.broker.quotas.limits import QuotaKey
from app.security.acl import WRITE_TOPIC, Acl, AclFilter, Operation, ResourceType
from app.security.principal import ANONYMOUS
from tests.support.acls import authorizer_over
from tests.support.charges import noted_charges, set_quotas
from tests.support.http_application import application

NOW_MS = 1_790_000_000_000
TOPICS: dict[str, dict[str, str | None]] = {
    "orders": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "compressed": {"compression.type": "gzip"},
    "small": {"max.message.bytes": "200"},
    "volatile": {"stele.storage": "memory"},
}


class StoppedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    # The body arrives in so many pieces.
    pieces: int = 1
    method: str = "POST"

    def scope(self) -> Scope:
        headers = [("host", "localhost"), ("content-length", str(len(self.body))), *self.headers]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": self.path.replace("%20", " "),
            "raw_path": self.path.encode(),
            "query_string": self.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }

    def messages(self) -> list[Message]:
        step = max(1, -(-len(self.body) // self.pieces))
        parts = [self.body[at : at + step] for at in range(0, len(self.body), step)] or [b""]
        return [{"type": "http.request", "body": part, "more_body": part is not parts[-1]} for part in parts]


BODIES = [
    b'{"records":[{"value":{"order": 1, "total": 1.50}}]}',
    b'{"records":[{"value":"text \\u00e9","key":"k"}]}',
    b'{"records":[{"value":null,"key":"k"}]}',
    b'{"records":[{"value_b64":"/w==","key_b64":"AA==","headers":[{"key":"h","value":"v"},{"key":"n"}]}]}',
    b'{"records":[{"value":1,"timestamp":1700000000000}]}',
    b'{"records":[{"value":1,"timestamp":9900000000000}]}',
    b'{"records":[{"value":1,"partition":0}]}',
    b'{"records":[{"value":1,"partition":7}]}',
    b'{"records":[{"value":1},{"value":2}]}',
    b'{"records":[{"value":"' + b"x" * 300 + b'"}]}',
    b'{"records":[{"value":"' + b"x" * BODY_BYTES_MAX + b'"}]}',
    b'{"records":[{"value":"\xff"}]}',
    b'{"records":[{"key":"no value"}]}',
    b'{"records":[]}',
    b'{"records":[' + b"[" * 5000 + b"]}",
    b"{}",
    b"",
]

requests = st.builds(
    Request,
    path=st.sampled_from(
        [*(f"/v1/topics/{name}/records" for name in (*TOPICS, "orders", "orders", "new", "__consumer_offsets", "a%20b", "a/b")),
         "/v1/topics//records", "/v1/topics/orders/records/"]
    ),
    query=st.sampled_from(["", "acks=1", "acks=all", "acks=-1", "acks=0", "acks=7", "acks=1&partition=0", "x=1"]),
    headers=st.sampled_from(
        [
            (("content-type", "application/json"),),
            (("content-type", "application/json"), ("user-agent", "test/1")),
            (),
            (("content-type", "application/json; charset=utf-8"),),
            (("content-type", "application/x-ndjson"),),
            (("content-type", "application/octet-stream"), ("record-key", "k")),
            (("content-type", "text/xml"),),
            (("content-type", "application/json"), ("producer-id", "4"), ("producer-epoch", "0"), ("producer-sequence", "0")),
        ]
    ),
    body=st.sampled_from([*BODIES, BODIES[0], BODIES[1]]),
    pieces=st.sampled_from([1, 1, 3]),
    method=st.sampled_from(["POST", "POST", "POST", "GET"]),
)  # fmt: skip


async def send(app: ASGIApp, request: Request) -> list[Message]:
    waiting, sent = request.messages(), list[Message]()

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def keep(message: Message) -> None:
        sent.append(message)

    await app(request.scope(), receive, keep)
    return sent


def _series(registry: CollectorRegistry) -> dict[str, float]:
    """Return how many requests were counted, by method, route and status, and how many were timed."""
    return {
        f"{sample.name} {sorted(sample.labels.items())}": sample.value
        for family in registry.collect()
        if family.name in ("stele_http_requests", "stele_http_request_seconds")
        for sample in family.samples
        if sample.name.endswith(("_total", "_count"))
    }


def _logs(path: Path) -> dict[str, bytes]:
    return {
        f"{log.parent.name}/{log.name}": log.read_bytes()
        for log in sorted(path.glob("*-*/*.log"))
        if not log.parent.name.startswith("__")
    }


async def outcome(
    path: Path, sequence: Sequence[Request], quotas: Mapping[str, float], *, is_direct: bool
) -> list[Any]:
    """Return responses, logs, counts and charges to quotas."""
    async with application(path, StoppedClock()) as app:
        state, traffic = app.state.stele, cast("HttpTraffic", app.state.http_traffic)
        broker: Broker = state.broker
        for name, configs in TOPICS.items():
            await broker.create_topic(name, placement=Placement(partitions=1), configs=configs)
        served: ASGIApp = app
        if is_direct:
            served = DirectProduce(app, state, traffic, app.state.request_counts, state.settings)
        await set_quotas(broker.quotas, quotas)
        responses: list[list[Message]] = []
        with noted_charges(broker.quotas) as charges:
            for request in sequence:
                responses.append(await send(served, request))
                charges.now_ms += 2000
        await broker.flush()
        counted = traffic.traffic()
        return [
            responses,
            _logs(path),
            _series(app.state.registry),
            (counted.bytes_in, counted.bytes_out),
            charges.noted,
            broker.quotas.throttling,
            (broker.counts.appended_batches, broker.counts.appended_records, broker.counts.appended_bytes),
        ]


@settings(max_examples=12)
@given(
    sequence=st.lists(requests, min_size=1, max_size=12),
    quotas=st.sampled_from(
        [
            {},
            {"producer_byte_rate": 20},
            {"producer_byte_rate": 100, "request_percentage": 1},
            {"producer_byte_rate": 1e12},
            {"consumer_byte_rate": 1},
        ]
    ),
)
def test_the_fast_and_the_generic_path_give_the_same_responses_logs_counts_and_charges(
    sequence: list[Request], quotas: dict[str, float]
) -> None:
    with tempfile.TemporaryDirectory() as direct, tempfile.TemporaryDirectory() as generic:
        ours = asyncio.run(outcome(Path(direct), sequence, quotas, is_direct=True))
        theirs = asyncio.run(outcome(Path(generic), sequence, quotas, is_direct=False))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


@pytest.mark.every(4)
@pytest.mark.parametrize("body", BODIES[:4])
@pytest.mark.parametrize("query", ["", "acks=1", "acks=all", "acks=0"])
@pytest.mark.parametrize("quotas", [{}, {"producer_byte_rate": 1e12, "request_percentage": 1e6}])
async def test_a_plain_record_never_reaches_the_application(
    tmp_path: Path, body: bytes, query: str, quotas: dict[str, float]
) -> None:
    async def refuse(*_: object) -> None:
        raise AssertionError("the application was called")

    async with application(tmp_path, StoppedClock()) as app:
        await app.state.stele.broker.create_topic("orders", placement=Placement(partitions=3))
        await set_quotas(app.state.stele.broker.quotas, quotas)
        served = DirectProduce(
            refuse,
            app.state.stele,
            app.state.http_traffic,
            app.state.request_counts,
            app.state.stele.settings,
        )
        request = Request("/v1/topics/orders/records", query, (("content-type", "application/json"),), body)
        start, _ = await send(served, request)
        assert start["status"] == 200


async def test_a_right_that_ends_before_the_body_arrives_leaves_the_request_to_the_application(
    tmp_path: Path,
) -> None:
    write = Acl(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        principal=str(ANONYMOUS),
        operation=Operation.WRITE,
    )
    authorizer = await authorizer_over([write])
    access = authorizer.access("http", ANONYMOUS, "127.0.0.1")
    assert access.allows(WRITE_TOPIC, "orders")
    asked: list[Scope] = []

    async def note(scope: Scope, *_: object) -> None:
        asked.append(scope)

    async with application(tmp_path, StoppedClock()) as app:
        state = app.state.stele
        await state.broker.create_topic("orders", placement=Placement(partitions=1))
        served = DirectProduce(note, state, app.state.http_traffic, app.state.request_counts, state.settings)
        request = Request("/v1/topics/orders/records", "", (("content-type", "application/json"),), BODIES[0])
        (body,) = request.messages()
        scope = {**request.scope(), "stele.access": access}

        async def receive() -> Message:
            await authorizer.acls.remove(AclFilter())
            return body

        async def keep(message: Message) -> None:
            raise AssertionError(message)

        await served(scope, receive, keep)
        assert asked == [scope]
        assert state.broker.log_state("orders", 0).log_end_offset == 0


@pytest.mark.parametrize("is_direct", [True, False])
async def test_the_bytes_and_the_time_of_a_produce_are_charged(tmp_path: Path, is_direct: bool) -> None:
    async with application(tmp_path, StoppedClock()) as app:
        state = app.state.stele
        await state.broker.create_topic("orders", placement=Placement(partitions=1))
        served: ASGIApp = app
        if is_direct:
            served = DirectProduce(
                app, state, app.state.http_traffic, app.state.request_counts, state.settings
            )
        await set_quotas(state.broker.quotas, {"producer_byte_rate": 1e6, "request_percentage": 1})
        with noted_charges(state.broker.quotas) as charges:
            seconds = count(0, 5)
            state.broker.quotas.clock_s = lambda: float(next(seconds))
            request = Request(
                "/v1/topics/orders/records",
                "acks=1",
                (("content-type", "application/json"), ("user-agent", "loader/1")),
                BODIES[0],
            )
            first, second = [await send(served, request) for _ in range(2)]
        assert (first[0]["status"], second[0]["status"]) == (200, 429)
        assert {(protocol, client) for protocol, _, client, _ in charges.noted} == {
            ("http", ("ANONYMOUS", "loader"))
        }
        (of_bytes, size), (of_time, percentage) = [(key, amount) for _, key, _, amount in charges.noted]
        assert (of_bytes, size) == (QuotaKey.PRODUCE, len(BODIES[0]))
        assert of_time == QuotaKey.REQUEST
        assert percentage >= 500


async def test_an_append_that_is_not_acknowledged_is_answered_as_by_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[Message]] = []
    for number, is_direct in enumerate((True, False)):
        async with application(tmp_path / str(number), StoppedClock()) as app:
            state = app.state.stele
            await state.broker.create_topic("orders", placement=Placement(partitions=1))
            served: ASGIApp = app
            if is_direct:
                served = DirectProduce(
                    app, state, app.state.http_traffic, app.state.request_counts, state.settings
                )
            with monkeypatch.context() as patched:
                patched.setattr("os.fdatasync", _broken)
                request = Request(
                    "/v1/topics/orders/records", "", (("content-type", "application/json"),), BODIES[0]
                )
                answers.append(await send(served, request))
    assert answers[0][0]["status"] == 503
    assert _of_same_directory(answers[0]) == _of_same_directory(answers[1])


def _broken(_descriptor: int) -> None:
    raise OSError(5, "the disk is broken")


def _of_same_directory(messages: Sequence[Message]) -> str:
    return str(messages).replace("/1/", "/0/")
