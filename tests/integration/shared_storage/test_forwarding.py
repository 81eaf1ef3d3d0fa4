"""Group requests over HTTP and the binary protocol: any broker answers them, and nobody gains a right by it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerLogin
from stele.errors import SteleClientError
from stele.testing import BrokerProcess, run_broker
from stele.wire import messages as m

from app.api.forwarding import BODY_BYTES_MAX, FRAME_PATH, KAFKA_FRAME_PATH
from load.postgres_server import PostgresServer
from tests.support.binary_peer import Peer
from tests.support.brokers import Brokers, await_no_quotas
from tests.support.postgres import postgres_bin
from tests.support.raw_http import RawConnection
from tests.support.waiting import eventually

BROKERS = 2

ROOT = BrokerLogin(user="root", password="the-password-of-root")
ADA = ("ada", "the-password-of-ada")


def other_than(brokers: Brokers, number: int) -> int:
    return next(one for one in brokers.processes if one != number)


def post(url: str, path: str, document: object, **options: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/groups{path}", json=document, timeout=60, **options)


@pytest.mark.long
def test_a_lease_is_taken_at_one_broker_and_acknowledged_at_another(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("readers")
    urls = [brokers[number].http_url for number in (other_than(brokers, coordinator), coordinator)]
    with Client(brokers[other_than(brokers, coordinator)].binary_url) as client:
        client.create_topic("forwarded")
        for number in range(3):
            client.produce("forwarded", str(number).encode())
    polled = post(urls[0], "/readers/poll", {"topics": ["forwarded"], "max_records": 2})
    assert polled.status_code == 200, polled.text
    assert [record["value"] for record in polled.json()["records"]] == ["0", "1"]
    acked = post(urls[0], "/readers/ack", {"lease": polled.json()["lease"]})
    assert acked.status_code < 300, acked.text
    described = [httpx.get(f"{url}/v1/groups/readers").json() for url in urls]
    assert described[0] == described[1]
    assert [part["committed"] for part in described[0]["partitions"]] == [2]
    # The member is listed with the address of the client, and errors arrive as they are.
    assert {member["client_host"] for member in described[0]["members"]} == {"127.0.0.1"}
    missing = httpx.get(f"{urls[0]}/v1/groups/missing")
    assert (missing.status_code, missing.json()["type"].rpartition("/")[2]) == (404, "group-not-found")
    # A list is complete while no shard moves.
    brokers.settle()
    listed: list[Any] = []

    def is_the_same() -> bool:
        # A coordinator may learn between two requests where a log ends, and count its lag again.
        listed.extend(httpx.get(f"{url}/v1/groups").json() for url in urls)
        return listed[-1] == listed[-2]

    eventually(is_the_same, "both brokers list the same")
    assert listed[-1]["is_complete"]
    assert "readers" in [group["group"] for group in listed[-1]["groups"]]
    # A path is forwarded as it was sent.
    odd = "/a%2Fb%20%C3%A9/offsets"
    reset = {"to": "earliest", "topics": ["forwarded"]}
    answer = httpx.put(f"{urls[0]}/v1/groups{odd}", json=reset)
    assert (answer.status_code, answer.json()["group"]) == (200, "a/b é"), answer.text


def test_a_client_that_ends_its_stream_gets_its_answer_from_any_broker(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("half-closed")
    body = b'{"to": "earliest", "topics": ["half-closed"]}'
    with Client(brokers[coordinator].binary_url) as client:
        client.create_topic("half-closed")
    for number in (coordinator, other_than(brokers, coordinator)):
        with RawConnection(brokers[number].http_url) as connection:
            connection.send(
                b"PUT /v1/groups/half-closed/offsets HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            connection.end_sending()
            answer = connection.response()
            assert answer is not None, f"broker {number}, where {coordinator} is the coordinator"
            assert answer.status == 200, answer.body


def test_pages_of_the_list_have_the_groups_of_all_brokers(brokers: Brokers) -> None:
    brokers.coordinator("any")
    names = [f"paged-{number}" for number in range(12)]
    brokers.settle()
    with Client(brokers[1].binary_url) as client:
        client.create_topic("paged")
    for name in names:
        brokers.coordinator(name)
        answer = httpx.put(
            f"{brokers[1].http_url}/v1/groups/{name}/offsets", json={"to": "earliest", "topics": ["paged"]}
        )
        assert answer.status_code == 200, answer.text
    assert {brokers.coordinator(name) for name in names} == {1, 2}
    for number in (1, 2):
        url, expected = f"{brokers[number].http_url}/v1/groups", sorted(names)
        pages = [
            httpx.get(url, params={"prefix": "paged-", "limit": 5, "page": page}).json()
            for page in (1, 2, 3, 4)
        ]
        assert [[group["group"] for group in page["groups"]] for page in pages] == [
            expected[:5],
            expected[5:10],
            expected[10:],
            [],
        ]
        assert [page["total"] for page in pages] == [12] * 4
        assert [page["next_after"] for page in pages] == [expected[4], expected[9], None, None]
        assert all(page["is_complete"] for page in pages)
        rest = httpx.get(url, params={"prefix": "paged-", "limit": 5, "after": expected[4]}).json()
        assert [group["group"] for group in rest["groups"]] == expected[5:10]
        assert rest["total"] == 7
        deep = httpx.get(url, params={"limit": 10_000, "page": 11})
        assert deep.status_code == 400
        assert "after=NAME" in deep.json()["detail"]


def test_binary_clients_use_groups_at_any_broker(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("binary readers")
    other = other_than(brokers, coordinator)
    with Client(brokers[other].binary_url) as client, Client(brokers[coordinator].binary_url) as second:
        client.create_topic("binary")
        client.produce("binary", b"first")
        member = client.join_group("binary readers", "binary")
        assert second.heartbeat("binary readers", member).member_id == member.member_id
        assert client.heartbeat("binary readers", member).generation == member.generation
        client.leave_group("binary readers", member)
    with Peer(brokers[other]) as peer:
        peer.send(m.HeartbeatRequest(group="binary readers", member_id="nobody", generation=1).encode())
        refusal = m.decode_response(m.MessageType.HEARTBEAT_RESPONSE, peer.frame()[5:])
        assert "unknown" in str(refusal).lower() or "member" in str(refusal).lower()


def test_a_quota_limits_what_a_forwarded_poll_reads(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("limited")
    other = other_than(brokers, coordinator)
    quotas = {"entity": {"user": None}, "values": {"consumer_byte_rate": 1}}
    with Client(brokers[other].binary_url) as client:
        client.create_topic("limited")
        for _ in range(5):
            client.produce("limited", b"x" * 20_000)
    poll = m.PollRequest(group="limited", topics=["limited"], max_wait_ms=10_000, max_bytes=1 << 20)
    try:
        answer = httpx.patch(f"{brokers[other].http_url}/v1/quotas", json=quotas)
        assert answer.status_code == 200, answer.text
        with Peer(brokers[other]) as peer:
            polled = peer.call(poll)
    finally:
        values = dict.fromkeys(quotas["values"])
        answer = httpx.patch(f"{brokers[other].http_url}/v1/quotas", json={**quotas, "values": values})
        assert answer.status_code == 200, answer.text
        await_no_quotas(brokers.processes.values())
    assert isinstance(polled, m.PollResponse)
    # More than the quota allows at once, but a poll brings at least one batch.
    assert 20_000 <= sum(len(part.batches) for part in polled.partitions) < 40_000


def test_any_broker_answers_for_the_mirrors(brokers: Brokers) -> None:
    urls = [f"{process.http_url}/v1/mirrors" for process in brokers.processes.values()]

    def is_shown(state: str) -> bool:
        shown = [httpx.get(f"{url}/prod").json() for url in urls]
        return (
            all(each["state"] == state for each in shown) and shown[0]["definition"] == shown[1]["definition"]
        )

    # One of them does not run it.
    maker, changer = urls
    body = {"from": "127.0.0.1:1", "topics": "orders"}
    assert httpx.put(f"{maker}/prod", json=body).status_code == 200
    eventually(lambda: is_shown("failed"), "both brokers show why it copies nothing")
    assert httpx.put(f"{changer}/prod", json={**body, "paused": True}).status_code == 200
    assert is_shown("paused")
    assert [len(httpx.get(url).json()["mirrors"]) for url in urls] == [1, 1]
    missing = httpx.post(f"{changer}/prod/promote", json={"topic": "none"})
    assert missing.status_code == 404, missing.text
    assert httpx.delete(f"{changer}/prod").status_code < 300
    assert [httpx.get(f"{url}/prod").status_code for url in urls] == [404, 404]


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/groups", f"{FRAME_PATH}/1", f"{KAFKA_FRAME_PATH}/x/1"])
@pytest.mark.parametrize("values", [["forged"], ["", ""], ["AAAA.AAAA"]])
def test_a_forged_signature_is_refused(brokers: Brokers, path: str, values: list[str]) -> None:
    headers = [("stele-forwarded", value) for value in values]
    answer = httpx.post(f"{brokers[1].http_url}{path}", headers=headers, content=b"x")
    assert answer.status_code == 401, answer.text
    assert "signature" in answer.json()["detail"]


def test_frames_are_served_to_brokers_only(brokers: Brokers) -> None:
    assert httpx.post(f"{brokers[1].http_url}{FRAME_PATH}/1").status_code == 404
    for method in ("POST", "DELETE"):
        assert httpx.request(method, f"{brokers[1].http_url}{KAFKA_FRAME_PATH}/x/1").status_code == 404


def test_the_body_of_a_forwarded_request_has_a_bound(brokers: Brokers) -> None:
    other = other_than(brokers, brokers.coordinator("g"))
    url = f"{brokers[other].http_url}/v1/groups/g/poll"
    answer = httpx.post(url, content=b" " * (BODY_BYTES_MAX + 1), timeout=60)
    assert answer.status_code == 413, answer.text


@pytest.mark.long
def test_requests_are_retriable_until_another_broker_takes_over(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("takeover")
    other = brokers[other_than(brokers, coordinator)]
    with Client(other.binary_url) as client:
        client.create_topic("survives")
        client.produce("survives", b"first")
        poll = {"topics": ["survives"], "poll_id": "p"}
        first = post(other.http_url, "/takeover/poll", poll)
        assert first.status_code == 200, first.text
        acked = post(other.http_url, "/takeover/ack", {"lease": first.json()["lease"]})
        assert acked.status_code < 300, acked.text
        brokers[coordinator].kill()
        client.produce("survives", b"second")
    while (answer := post(other.http_url, "/takeover/poll", {"topics": ["survives"]})).status_code != 200:
        assert (answer.status_code, answer.json()["retriable"]) == (503, True), answer.text
    assert [record["value"] for record in answer.json()["records"]] == ["second"]
    brokers[coordinator].start()


def test_a_queue_is_served_by_any_broker_and_survives_its_coordinator(brokers: Brokers) -> None:
    coordinator = brokers.coordinator("packing")
    other = brokers[other_than(brokers, coordinator)]
    with Client(other.binary_url) as client:
        client.create_topic("parcels")
        for number in range(4):
            client.produce("parcels", b"%d" % number)
    body = {"topics": ["parcels"], "from": "earliest", "max_records": 3, "lock": "mine"}
    polled = post(other.http_url, "/packing/share/poll", body)
    assert polled.status_code == 200, polled.text
    records = polled.json()["records"]
    assert [(one["offset"], one["deliveries"]) for one in records] == [(0, 1), (1, 1), (2, 1)]
    # Any client that knows the lock can settle, through any broker.
    place = {"topic": "parcels", "partition": 0}
    at_coordinator = brokers[coordinator].http_url
    acked = post(at_coordinator, "/packing/share/ack", {"lock": "mine", "records": [place | {"offset": 0}]})
    assert acked.status_code == 200, acked.text
    freed = {"lock": "mine", "records": [place | {"offset": 2}]}
    assert post(other.http_url, "/packing/share/release", freed).status_code == 200

    brokers[coordinator].kill()
    again = {"topics": ["parcels"], "max_records": 10}
    while (answer := post(other.http_url, "/packing/share/poll", again)).status_code != 200:
        assert (answer.status_code, answer.json()["retriable"]) == (503, True), answer.text
    # What was accepted never comes again, a stored delivery counts, and locks end with their coordinator.
    found = [(one["offset"], one["deliveries"]) for one in answer.json()["records"]]
    assert found == [(1, 1), (2, 2), (3, 1)]
    brokers[coordinator].start()


@pytest.mark.long
def test_access_rules_hold_for_the_client_and_not_for_the_broker(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer(postgres_bin(), fsync="off", wal_level="replica"))

        def broker(number: int) -> BrokerProcess:
            environment = {
                "STELE_STORAGE": "shared",
                "STELE_POSTGRES_URL": server.dsn,
                "STELE_BROKER_ID": str(number),
            }
            path = tmp_path / f"broker-{number}"
            # The second one finds the users in PostgreSQL.
            return stack.enter_context(run_broker(path, environment=environment, login=ROOT))

        brokers = Brokers({number: broker(number) for number in (1, 2)})
        coordinator = brokers.coordinator("g")
        # With the login of root.
        root = {number: brokers[number].http_url for number in (1, 2)}
        assert httpx.put(f"{root[1]}/v1/topics/secret", json={"partitions": 1}).status_code == 201
        added = {"name": ADA[0], "password": ADA[1]}
        assert httpx.post(f"{root[1]}/v1/users", json=added).status_code == 201
        other = other_than(brokers, coordinator)
        plain = f"http://127.0.0.1:{brokers[other].http_port}"
        poll = {"topics": ["secret"]}
        assert post(plain, "/g/poll", poll).status_code == 401
        assert post(plain, "/g/poll", poll, auth=("ada", "another-password")).status_code == 401
        while (refused := post(plain, "/g/poll", poll, auth=ADA)).status_code == 401:
            # The broker learns of the user within 250 ms.
            pass
        assert refused.status_code == 403, refused.text
        assert httpx.get(f"{plain}/v1/groups/g", auth=ADA).status_code == 403
        allowed = post(root[other], "/g/poll", poll)
        assert allowed.status_code == 200, allowed.text
        with (
            Client(f"stele://ada:{ADA[1]}@127.0.0.1:{brokers[other].binary_port}") as client,
            pytest.raises(SteleClientError, match="User:ada is not allowed to read group 'g'"),
        ):
            client.join_group("g", "secret")
