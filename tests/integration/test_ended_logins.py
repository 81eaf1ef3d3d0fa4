"""A read that waits when its login ends gets nothing of what is written after that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from stele.broker_process import BrokerLogin, BrokerProcess, run_broker
from stele.wire import messages as m
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.security import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer, fetch

ROOT = BrokerLogin(user="root", password="the-password-of-root")
PASSWORD = "the-password-of-ada"
PLAIN = f"\0ada\0{PASSWORD}".encode()
TOPIC, GROUP, WAIT_MS = "orders", "billing", 50_000
AFTER = b"written after the login ended"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(tmp_path_factory.mktemp("logins") / "data", login=ROOT) as broker:
        yield broker


@pytest.fixture
def root(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, auth=(ROOT.user, ROOT.password), timeout=60) as root:
        assert root.put(f"/v1/topics/{TOPIC}", json={"partitions": 1}).status_code == 201
        assert root.post("/v1/users", json={"name": "ada", "password": PASSWORD}).status_code == 201
        assert root.post("/v1/acls", json={"acls": [right("TOPIC", TOPIC), right("GROUP", GROUP)]}).is_success
        yield root
        assert root.delete(f"/v1/topics/{TOPIC}").status_code == 204
        root.delete("/v1/users/ada")


def right(kind: str, name: str) -> dict[str, str]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": "LITERAL",
        "principal": "User:ada",
        "operation": "READ",
    }


# Each returns a connection whose last request waits for records. The answer to the one before it has come, which
# begins in the same turn of the loop.


def kafka(broker: BrokerProcess) -> KafkaPeer | Peer:
    peer = KafkaPeer(broker)
    assert peer.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert peer.call(SaslAuthenticateRequest(auth_bytes=PLAIN), 2).error_code == 0
    waiting = fetch(TOPIC, 0, max_wait_ms=WAIT_MS)
    peer.post_all([(ApiVersionsRequest(), 0), (waiting, 12)])
    peer.next_answer()
    return peer


def binary(broker: BrokerProcess, request: m.Request) -> KafkaPeer | Peer:
    peer = Peer(broker)
    assert isinstance(peer.call(m.AuthenticateRequest(mechanism="PLAIN", data=PLAIN)), m.AuthenticateResponse)
    peer.send(m.HttpListenerRequest().encode() + request.encode())
    peer.frame()
    return peer


def binary_fetch(broker: BrokerProcess) -> KafkaPeer | Peer:
    partitions = [m.FetchPartition(topic=TOPIC, partition=0, offset=0)]
    return binary(broker, m.FetchRequest(partitions=partitions, max_wait_ms=WAIT_MS))


def binary_poll(broker: BrokerProcess) -> KafkaPeer | Peer:
    return binary(broker, m.PollRequest(group=GROUP, topics=[TOPIC], max_wait_ms=WAIT_MS))


@pytest.mark.parametrize("wait", [kafka, binary_fetch, binary_poll])
@pytest.mark.parametrize("how", ["deleted", "changed"])
def test_a_read_that_waits_ends_with_its_login(
    broker: BrokerProcess, root: httpx.Client, wait: Callable[[BrokerProcess], KafkaPeer | Peer], how: str
) -> None:
    peer = wait(broker)
    if how == "deleted":
        assert root.delete("/v1/users/ada").status_code == 204
    else:
        changed = root.put("/v1/users/ada/password", json={"password": f"{PASSWORD}-2"})
        assert changed.status_code == 204
    assert root.post(f"/v1/topics/{TOPIC}/records", json={"records": [{"value": AFTER.decode()}]}).is_success
    try:
        seen = peer.rest()
    except ConnectionResetError:
        seen = b""
    finally:
        peer.close()
    assert AFTER not in seen
    assert seen == b""
