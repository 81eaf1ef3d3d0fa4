"""Ids that clients choose, used by another client: no answer shows what that client may not read.

Each row of ``TRIES`` is a pair of requests. The first, of a client that may read ``SECRET``, makes the broker
remember something under an id. The second, of one that may not, names the same id.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any
from uuid import uuid4

import httpx
import pytest
from stele.broker_process import BrokerProcess
from stele.wire import messages as m
from stele.wire.kafka.consumer_groups import ConsumerGroupHeartbeatRequest
from stele.wire.kafka.share_groups import ShareGroupHeartbeatRequest

from app.api import application
from app.api.json_bodies import JsonBody
from app.api.openapi.operations import OPERATIONS
from app.api.schemas import Components
from app.tcp.binary.guards import GUARDS
from tests.integration.test_authorization import (
    ALICE,
    OPEN,
    ROOT,
    SECRET,
    broker,
    fetch_of,
    give,
    http_of,
    kafka_of,
)
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer
from tests.support.share_groups import Member, configure
from tests.support.waiting import eventually

__all__ = ["broker"]

VALUE = "9000-a-month"


@dataclass
class Clients:
    """``owner`` may read everything; the others may read ``OPEN`` and use ``group``."""

    owner: httpx.Client
    owner_kafka: KafkaPeer
    http: httpx.Client
    kafka: KafkaPeer
    binary: Peer
    group: str

    def of_owner(self, path: str, body: Any) -> Any:
        answer = self.owner.post(f"/v1/groups/{self.group}/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def over_http(self, path: str, body: Any) -> str:
        return self.http.post(f"/v1/groups/{self.group}/{path}", json=body).text


@pytest.fixture
def clients(broker: BrokerProcess) -> Iterator[Clients]:
    group = f"g-{uuid4().hex[:8]}"
    with (
        http_of(broker, ROOT) as owner,
        http_of(broker, ALICE) as http,
        kafka_of(broker, ROOT) as owner_kafka,
        kafka_of(broker, ALICE) as kafka,
        Peer(broker) as binary,
    ):
        for topic, value in ((OPEN, "seen"), (SECRET, VALUE)):
            sent = owner.post(f"/v1/topics/{topic}/records?partition=0", json={"records": [{"value": value}]})
            assert sent.status_code == 200
        for user in (ALICE, "ANONYMOUS"):
            give(owner, "READ", OPEN, user=user)
            give(owner, "READ", group, user=user, resource_type="GROUP")
        yield Clients(owner, owner_kafka, http, kafka, binary, group)
        for user in (ALICE, "ANONYMOUS"):
            owner.delete("/v1/acls", params={"principal": f"User:{user}"})


def shown(answer: object) -> str:
    """Return all texts and bytes of an answer."""
    return f"{answer!r}"


# ── polls under leases ──


def poll_id(clients: Clients) -> list[str]:
    polled = clients.of_owner("poll", {"topics": [SECRET], "poll_id": "1", "wait_ms": 10_000})
    assert VALUE in json.dumps(polled)
    again = clients.of_owner("poll", {"topics": [SECRET, OPEN], "poll_id": "1"})
    assert again["lease"] == polled["lease"], "more topics than the lease has are no other poll"
    over_http = clients.over_http("poll", {"topics": [OPEN], "poll_id": "1"})
    assert "seen" in over_http, "the poll is one of its own"
    assert polled["lease"] not in over_http
    request = m.PollRequest(group=clients.group, topics=[OPEN], poll_id="1")
    return [over_http, shown(clients.binary.call(request))]


def lease(clients: Clients) -> list[str]:
    polled = clients.of_owner("poll", {"topics": [SECRET], "wait_ms": 10_000})
    token = polled["lease"]
    answers = [
        clients.over_http("ack", {"lease": token}),
        clients.over_http("nack", {"lease": token}),
        clients.over_http("extend", {"lease": token, "lease_ms": 1000}),
        clients.http.post(
            "/v1/transactions", json={"leases": [{"group": clients.group, "lease": token}]}
        ).text,
        shown(clients.binary.call(m.AckRequest(group=clients.group, lease=token))),
        shown(clients.binary.call(m.NackRequest(group=clients.group, lease=token))),
        shown(clients.binary.call(m.ExtendRequest(group=clients.group, lease=token, lease_ms=1000))),
    ]
    # The token itself has the names of its topics, so a refusal may name them.
    assert SECRET in base64.urlsafe_b64decode(token).decode()
    assert all("is not allowed to read topic" in answer for answer in answers), answers
    clients.of_owner("extend", {"lease": token, "lease_ms": 1000})
    return [answer.replace(SECRET, "") for answer in answers]


# ── locks of share groups ──


def lock(clients: Clients) -> list[str]:
    asked = {"topics": [SECRET], "lock": "1", "wait_ms": 10_000, "from": "earliest"}
    assert VALUE in json.dumps(clients.of_owner("share/poll", asked))
    answers = [clients.over_http("share/poll", {"topics": [OPEN], "lock": "1", "from": "earliest"})]
    for action in ("ack", "release", "reject", "renew"):
        answers.append(clients.over_http(f"share/{action}", {"lock": "1"}))
    assert VALUE in json.dumps(clients.of_owner("share/poll", asked)), "the lock still holds it"
    return answers


def share_session(clients: Clients) -> list[str]:
    configure(clients.owner_kafka, clients.group, share_auto_offset_reset="earliest")
    owner = Member(clients.owner_kafka, clients.group, SECRET)
    eventually(lambda: bool((owner.beat(), owner.partitions)[1]), "an assignment")
    assert owner.fetch()
    other = Member(clients.kafka, clients.group, SECRET)
    other.member_id, other.session_epoch = owner.member_id, owner.session_epoch
    answers: list[Any] = [clients.kafka.call(other.fetch_request(), 2)]
    other.partitions = owner.partitions
    for epoch in (owner.session_epoch + 1, 0):
        answers.append(clients.kafka.call(other.fetch_request(share_session_epoch=epoch), 2))
    return [shown(answer) for answer in answers]


# ── members ──


def member(clients: Clients) -> list[str]:
    joined = clients.of_owner("members", {"topics": [SECRET], "session_timeout_ms": 30_000})
    assert SECRET in json.dumps(joined["assignment"])
    member_id, generation = joined["member_id"], joined["generation"]
    stays = m.HeartbeatRequest(group=clients.group, member_id=member_id, generation=generation)
    joins = m.JoinGroupRequest(
        group=clients.group, member_id=member_id, session_timeout_ms=30_000, topics=[OPEN]
    )
    body = {"topics": [OPEN], "member_id": member_id, "session_timeout_ms": 30_000}
    owned = {"member_id": member_id, "generation": generation}
    return [
        clients.over_http(f"members/{member_id}/heartbeat", {"generation": generation}),
        shown(clients.binary.call(stays)),
        clients.http.put(f"/v1/groups/{clients.group}/partitions/{OPEN}/0/owner", json=owned).text,
        clients.over_http("members", body),
        shown(clients.binary.call(joins)),
    ]


def _modern_member(clients: Clients, request: Callable[..., Any], **fields_: Any) -> list[str]:
    known = {"group_id": clients.group, "member_id": "m", "member_epoch": 0} | fields_
    joined = clients.owner_kafka.call(request(**known, subscribed_topic_names=[SECRET]), 1)
    assert joined.error_code == 0, joined
    answers = [
        clients.kafka.call(request(**(known | {"member_epoch": epoch}), subscribed_topic_names=topics), 1)
        for epoch, topics in ((joined.member_epoch, None), (0, [OPEN]), (-1, None))
    ]
    return [shown(answer) for answer in answers]


def consumer_group_member(clients: Clients) -> list[str]:
    return _modern_member(
        clients, ConsumerGroupHeartbeatRequest, rebalance_timeout_ms=30_000, topic_partitions=[]
    )


def share_group_member(clients: Clients) -> list[str]:
    return _modern_member(clients, ShareGroupHeartbeatRequest)


# ── the rest ──


def fetch_session(clients: Clients) -> list[str]:
    begun = clients.owner_kafka.call(fetch_of(SECRET, epoch=0), 11)
    assert VALUE in shown(begun)
    answer = clients.kafka.call(fetch_of("", session=begun.session_id, epoch=1), 11)
    # The broker chooses the id of a session, at random; as in Kafka, its partitions are refused by name.
    return [shown(answer).replace(SECRET, "")]


def idempotency_key(clients: Clients) -> list[str]:
    key = {"Idempotency-Key": clients.group}
    body = {"records": [{"topic": SECRET, "partition": 1, "value": "x"}]}
    first = clients.owner.post("/v1/transactions", json=body, headers=key)
    assert first.status_code == 200, first.text
    answer = clients.http.post("/v1/transactions", json=body, headers=key)
    assert "offset" not in answer.text
    # The refusal repeats the name from the request.
    return [answer.text.replace(SECRET, "")]


TRIES: list[Callable[[Clients], list[str]]] = [
    poll_id,
    lease,
    lock,
    share_session,
    member,
    consumer_group_member,
    share_group_member,
    fetch_session,
    idempotency_key,
]


@pytest.mark.parametrize("attempt", TRIES, ids=lambda attempt: attempt.__name__)
def test_an_id_of_another_client_shows_nothing_that_its_user_may_not_read(
    clients: Clients, attempt: Callable[[Clients], list[str]]
) -> None:
    answers = attempt(clients)
    assert answers
    for answer in answers:
        assert VALUE not in answer
        assert SECRET not in answer


_TRIED = {"poll_id", "lease", "leases", "lock", "member_id"}


def test_every_id_of_something_remembered_is_tried() -> None:
    # The application has all routes.
    assert application.create_application
    components = Components()
    for operation in OPERATIONS.values():
        if isinstance(operation.body, JsonBody):
            operation.body.document(components)
    over_http = {name for schema in components.schemas.values() for name in schema.get("properties", ())}
    binary = {field.name for request in GUARDS for field in fields(request)}
    ids = {name for name in over_http | binary if name.endswith("_id") or name in ("lease", "leases", "lock")}
    # Producers and their transactions are answered with numbers alone, and need a right on their id. Mirrors name topics.
    assert ids - {"producer_id", "transactional_id", "client_id", "topic_id"} == _TRIED
