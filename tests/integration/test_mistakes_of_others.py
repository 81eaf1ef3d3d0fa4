"""Mistakes that other brokers and libraries have shipped, tried over real sockets on every listener.

Each test names the published vulnerability. ``tests/unit/security`` has those of the parts,
``test_before_login`` what a client can do before its login.
"""

from __future__ import annotations

import base64
import hmac
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import stele
from stele.transport.scram import ScramClient
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from stele.wire.kafka.fetch import ReplicaState
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from stele.wire.kafka.security import SaslAuthenticateRequest
from stele.wire.kafka.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from app.clock import SystemClock
from tests.integration import test_kafka_logins
from tests.integration.test_kafka_logins import AUDIENCE, ISSUER, KEY, PASSWORD, add_user, handshake, plain
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer, error_text, produce_frame, produced_offset
from tests.support.binary_peer import decode as decoded
from tests.support.kafka_peer import KafkaPeer, fetch, only_partition, produce, request_frame

ROOT, ALICE, BOB = "root", "alice", "bob"
OPEN, SECRET = "open-orders", "secret-salaries"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

key_set = test_kafka_logins.key_set


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, key_set: Path) -> Iterator[BrokerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("mistakes") / "data"
    data_dir.mkdir()
    for user in (ROOT, ALICE, BOB):
        add_user(data_dir, user)
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{ROOT}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    environment = {
        "STELE_AUTHENTICATION": "required",
        "STELE_OAUTH_JWKS": str(key_set),
        "STELE_OAUTH_ISSUER": ISSUER,
        "STELE_OAUTH_AUDIENCE": AUDIENCE,
        # All of these tests come from one address.
        "STELE_LOGIN_FAILURES_FREE": "10000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        with http_of(broker, ROOT) as root:
            for topic in (OPEN, SECRET):
                assert root.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
        yield broker


def http_of(broker: BrokerProcess, user: str) -> httpx.Client:
    return httpx.Client(base_url=broker.http_url, auth=(user, PASSWORD), timeout=60.0)


def kafka_of(broker: BrokerProcess, user: str) -> KafkaPeer:
    peer = KafkaPeer(broker)
    handshake(peer)
    assert peer.call(plain(user), 2).error_code == ErrorCode.NONE
    return peer


def binary_of(broker: BrokerProcess, user: str) -> Peer:
    peer = Peer(broker)
    answer = peer.call(m.AuthenticateRequest(mechanism="PLAIN", data=f"\0{user}\0{PASSWORD}".encode()))
    assert isinstance(answer, m.AuthenticateResponse)
    assert answer.is_done
    return peer


@pytest.fixture
def root(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """The administrator; after the test only the administrator's rules are left."""
    with http_of(broker, ROOT) as client:
        yield client
        for user in (ALICE, BOB, "*"):
            assert client.delete("/v1/acls", params={"principal": f"User:{user}"}).status_code == 200


def give(
    root: httpx.Client, operation: str, name: str, *, user: str = ALICE, kind: str = "TOPIC", **fields: str
) -> None:
    rule = {
        "principal": f"User:{user}",
        "operation": operation,
        "resource_type": kind,
        "resource_name": name,
        **fields,
    }
    answer = root.post("/v1/acls", json={"acls": [rule]})
    assert answer.status_code == 201, answer.text


def end_of(root: httpx.Client, topic: str) -> int:
    answer = root.get(f"/v1/topics/{topic}/partitions/0/offsets", params={"at": "latest"})
    assert answer.status_code == 200, answer.text
    return answer.json()["offset"]


def writes(broker: BrokerProcess, topic: str, user: str = ALICE) -> list[bool]:
    """Return whether the user may write to the topic: over HTTP, Kafka and both ways of the binary protocol."""
    with http_of(broker, user) as http:
        status = http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x"}]}).status_code
    assert status in (200, 403)
    with kafka_of(broker, user) as peer:
        code = only_partition(peer.call(produce(topic, batch_of([b"x"])), 9)).error_code
    with binary_of(broker, user) as peer:
        simple = peer.ask(produce_frame(topic, b"x"))
        batches = m.ProduceBatchRequest(topic=topic, partition=0, acks=1, batches=bytes(batch_of([b"x"])))
        batch = peer.call(batches)
    assert code in (ErrorCode.NONE, REFUSED)
    return [status == 200, code == ErrorCode.NONE, simple[5] == 1, not isinstance(batch, m.ErrorResponse)]


# ── who a client is ──


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_does_not_act_as_another(broker: BrokerProcess, mechanism: Any) -> None:
    """Kafka let a client log in as one user and act as another (CVE-2017-12610)."""
    if mechanism == "PLAIN":
        message = f"{ROOT}\0{ALICE}\0{PASSWORD}".encode()
    else:
        first = ScramClient(mechanism, ALICE, PASSWORD, "a-nonce").first()
        message = first.replace(b"n,,", f"n,a={ROOT},".encode())
    with KafkaPeer(broker) as peer:
        handshake(peer, mechanism)
        answer = peer.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert peer.rest() == b""
    with Peer(broker) as peer:
        answer = peer.call(m.AuthenticateRequest(mechanism=mechanism, data=message))
        assert isinstance(answer, m.ErrorResponse)
        assert answer.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert error_text(peer.ask(produce_frame(OPEN, b"x")), 4)


def test_each_request_has_the_principal_of_its_own_login(broker: BrokerProcess, root: httpx.Client) -> None:
    """NATS let a client change to another account on its connection (CVE-2022-24450)."""
    give(root, "READ", SECRET)

    def asked(*headers: str) -> int:
        head = [
            f"GET /v1/topics/{SECRET}/partitions/0/offsets HTTP/1.1",
            f"Host: {broker.host}:{broker.http_port}",
            *headers,
            "",
            "",
        ]
        connection.sendall("\r\n".join(head).encode())
        response = b""
        while b"\r\n\r\n" not in response:
            response += connection.recv(65536)
        head_bytes, _, body = response.partition(b"\r\n\r\n")
        length = int(head_bytes.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        return int(response.split()[1])

    def basic(user: str, password: str = PASSWORD) -> str:
        return f"Authorization: Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    form = {"user": ALICE, "password": PASSWORD, "next": "/"}
    own_page = {"Sec-Fetch-Site": "same-origin"}
    ((name, value),) = httpx.post(
        f"{broker.http_url}/console/login", data=form, headers=own_page
    ).cookies.items()
    cookie = f"Cookie: {name}={value}"
    with socket.create_connection((broker.host, broker.http_port), timeout=120) as connection:
        assert asked(basic(ALICE)) == 200
        assert asked(basic(BOB)) == 403
        assert asked() == 401
        assert asked(cookie) == 200
        # A header counts before the cookie, and a wrong one is not made good by it.
        assert asked(cookie, basic(BOB)) == 403
        assert asked(cookie, basic(ALICE, "wrong-password")) == 401
        assert asked(basic(ALICE), basic(BOB)) == 401
        assert asked(basic(ALICE)) == 200


def test_the_fetch_session_of_another_client_shows_nothing(broker: BrokerProcess, root: httpx.Client) -> None:
    """A session remembers topics, never the rights of the client that began it (CVE-2022-24450)."""
    give(root, "READ", SECRET)
    assert root.post(f"/v1/topics/{SECRET}/records", json={"records": [{"value": "x"}]}).status_code == 200
    with kafka_of(broker, ALICE) as alice, kafka_of(broker, BOB) as bob:
        begun = alice.call(fetch(SECRET, 0, session_epoch=0), 11)
        assert only_partition(begun).records
        taken = fetch(SECRET, 0, session_id=begun.session_id, session_epoch=1)
        taken.topics = []
        answer = bob.call(taken, 11)
        assert not any(partition.records for topic in answer.responses for partition in topic.partitions)


@pytest.mark.parametrize("name", ["ANONYMOUS", "*", "", "a\nb", "x" * 300])
def test_no_user_has_a_name_that_means_something_else(root: httpx.Client, name: str) -> None:
    """NATS let in a user that nobody had made (CVE-2023-47090)."""
    answer = root.post("/v1/users", json={"name": name, "password": PASSWORD})
    assert answer.status_code == 400, answer.text
    assert sorted(user["name"] for user in root.get("/v1/users").json()["users"]) == [ALICE, BOB, ROOT]


def test_a_rule_of_another_user_or_address_gives_no_right(broker: BrokerProcess, root: httpx.Client) -> None:
    """The address is the one of the socket, whatever a header says; clients can write any header."""
    give(root, "WRITE", OPEN, user=BOB)
    give(root, "WRITE", "*", user="*", permission="DENY", host="10.0.0.7")
    assert writes(broker, OPEN) == [False] * 4
    assert writes(broker, OPEN, BOB) == [True] * 4
    with http_of(broker, ALICE) as alice:
        give(root, "READ", OPEN, host="10.0.0.7")
        for header in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP"):
            value = "for=10.0.0.7" if header == "Forwarded" else "10.0.0.7"
            answer = alice.get(f"/v1/topics/{OPEN}/partitions/0/records", headers={header: value})
            assert answer.status_code == 403, header


# ── tokens ──

OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _claims(**changes: object) -> dict[str, object]:
    now_s = SystemClock().now_ms() // 1000
    whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": ROOT, "iat": now_s, "exp": now_s + 600, **changes}
    return {name: value for name, value in whole.items() if value is not None}


def _token(header: dict[str, object], claims: dict[str, object], key: object = KEY) -> str:
    """A token with any header and claims; signed with RSA, with an HMAC if ``key`` is bytes, or not."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    if isinstance(key, rsa.RSAPrivateKey):
        return jwt.api_jws.encode(json.dumps(claims).encode(), key, "RS256", headers=header)
    text = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
    return f"{text}.{part(hmac.digest(key, text.encode(), 'sha256')) if isinstance(key, bytes) else ''}"


def _public_jwk(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    return RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)


def _public_pem() -> bytes:
    return KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


FORGED: dict[str, Callable[[], str]] = {
    "unsigned, CVE-2026-33557": lambda: _token({"alg": "none", "kid": "one"}, _claims(), None),
    "unsigned in other letters": lambda: _token({"alg": "nOnE", "kid": "one"}, _claims(), None),
    "no signature": lambda: _token({"alg": "RS256", "kid": "one"}, _claims(), None),
    "the public key as a secret, CVE-2022-29217": lambda: _token(
        {"alg": "HS256", "kid": "one"}, _claims(), _public_pem()
    ),
    "an empty key, CVE-2026-49852": lambda: _token({"alg": "HS256", "kid": "one"}, _claims(), b""),
    "an empty key without a name": lambda: _token({"alg": "HS256"}, _claims(), b""),
    "an unknown critical header, CVE-2026-32597": lambda: _token(
        {"kid": "one", "crit": ["exp2"], "exp2": 1}, _claims()
    ),
    "a key that the token brings": lambda: _token(
        {"kid": "mine", "jwk": _public_jwk(OTHER_KEY)}, _claims(), OTHER_KEY
    ),
    "a list as the subject, CVE-2026-75509": lambda: _token({"kid": "one"}, _claims(sub=[ROOT])),
    "a list as the issuer, CVE-2026-75509": lambda: _token({"kid": "one"}, _claims(iss=[ISSUER])),
    "no audience": lambda: _token({"kid": "one"}, _claims(aud=None)),
    "no expiry": lambda: _token({"kid": "one"}, _claims(exp=None)),
}


def token_logs_in(broker: BrokerProcess, token: str) -> list[bool]:
    """Return whether the token logs in over HTTP, Kafka and the binary protocol."""
    message = f"n,,\1auth=Bearer {token}\1\1".encode()
    answer = httpx.get(
        f"{broker.http_url}/v1/topics", headers={"Authorization": f"Bearer {token}"}, timeout=60
    )
    assert answer.status_code in (200, 401), answer.text
    with KafkaPeer(broker) as peer:
        handshake(peer, "OAUTHBEARER")
        over_kafka = peer.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        if over_kafka.auth_bytes:
            over_kafka = peer.call(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
    with Peer(broker) as peer:
        over_binary = peer.call(m.AuthenticateRequest(mechanism="OAUTHBEARER", data=message))
        if isinstance(over_binary, m.AuthenticateResponse) and not over_binary.is_done:
            over_binary = peer.call(m.AuthenticateRequest(mechanism="OAUTHBEARER", data=b"\1"))
    return [
        answer.status_code == 200,
        over_kafka.error_code == ErrorCode.NONE,
        isinstance(over_binary, m.AuthenticateResponse),
    ]


def test_a_token_of_the_issuer_logs_in(broker: BrokerProcess) -> None:
    assert token_logs_in(broker, _token({"kid": "one"}, _claims())) == [True] * 3


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_token_logs_in_nowhere(broker: BrokerProcess, forgery: str) -> None:
    assert token_logs_in(broker, FORGED[forgery]()) == [False] * 3


# ── what a client may do ──


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("acks", [1, -1, 0])
def test_no_fast_path_of_a_produce_skips_the_check(
    broker: BrokerProcess, root: httpx.Client, version: int, acks: int
) -> None:
    """Kafka stored produces whose rights it had not checked (CVE-2018-17196)."""
    give(root, "WRITE", OPEN)
    before = end_of(root, SECRET), end_of(root, OPEN)
    turns = [OPEN, OPEN, SECRET, OPEN, SECRET, SECRET, OPEN]
    with kafka_of(broker, ALICE) as peer:
        peer.post_all([(produce(topic, batch_of([b"x"]), acks=acks), version) for topic in turns if acks])
        for topic in turns if acks else ():
            _, answer = peer.next_answer()
            expected = ErrorCode.NONE if topic == OPEN else REFUSED
            assert only_partition(answer).error_code == expected, topic
        if not acks:
            for topic in (OPEN, OPEN, OPEN, OPEN, SECRET):
                peer.send(_unanswered(topic, version))
            # A refused produce that asks for no answer ends the connection, as in Apache Kafka.
            assert peer.rest() == b""
    assert (end_of(root, SECRET), end_of(root, OPEN)) == (before[0], before[1] + 4)


def _unanswered(topic: str, version: int) -> bytes:
    return request_frame(produce(topic, batch_of([b"x"]), acks=0), version)


def test_a_run_of_simple_produces_is_checked_topic_by_topic(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    """The second listener of NATS did not check at all (CVE-2026-33217)."""
    give(root, "WRITE", OPEN)
    before = end_of(root, SECRET)
    turns = [OPEN, OPEN, SECRET, SECRET, OPEN, SECRET]
    with binary_of(broker, ALICE) as peer:
        peer.send(*(produce_frame(topic, b"x") for topic in turns))
        for topic in turns:
            answer = peer.frame()
            if topic == OPEN:
                produced_offset(answer)
            else:
                assert "is not allowed to write" in error_text(answer, 4)
        batches = [
            m.ProduceBatchRequest(topic=topic, partition=0, acks=1, batches=bytes(batch_of([b"x"]))).encode()
            for topic in turns
        ]
        peer.send(*batches)
        for topic in turns:
            answer = decoded(peer.frame())
            code = answer.code if isinstance(answer, m.ErrorResponse) else ErrorCode.NONE
            assert code == (ErrorCode.NONE if topic == OPEN else REFUSED)
    with http_of(broker, ALICE) as http:
        for body, kind in (
            (b'{"records": [{"value": "x"}]}', "application/json"),
            (b'{"value": "x"}\n', "application/x-ndjson"),
            (b"x", "application/octet-stream"),
        ):
            answer = http.post(f"/v1/topics/{SECRET}/records", content=body, headers={"Content-Type": kind})
            assert answer.status_code == 403, kind
    assert end_of(root, SECRET) == before


def test_a_client_is_no_broker(broker: BrokerProcess, root: httpx.Client) -> None:
    """Kafka took a client that named itself a replica for a broker (CVE-2018-1288)."""
    give(root, "ALL", OPEN)
    with kafka_of(broker, ALICE) as peer:
        for topic, code in ((SECRET, REFUSED), (OPEN, ErrorCode.NONE)):
            request = fetch(topic, 0)
            request.replica_id = 1
            assert only_partition(peer.call(request, 11)).error_code == code
            asked = ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
            (listed,) = peer.call(ListOffsetsRequest(replica_id=1, topics=[asked]), 5).topics
            assert listed.partitions[0].error_code == code
        (topic_id,) = {
            described.topic_id
            for described in peer.call(_metadata(OPEN), 12).topics
            if described.name == OPEN
        }
        by_id = fetch(topic_id, 0)
        by_id.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
        assert only_partition(peer.call(by_id, 16)).error_code == ErrorCode.NONE
        marker = WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=OPEN, partition_indexes=[0])],
            coordinator_epoch=0,
        )
        (marked,) = peer.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        (of_topic,) = marked.topics
        assert of_topic.partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _metadata(topic: str) -> object:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)


def _rule(pattern: int, name: str, principal: str, permission: int) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": 4,
        "permission_type": permission,
    }


def test_a_denial_beats_permissions_and_outlives_other_rules(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    """Kafka lost denials when another rule was removed (CVE-2024-27309); NATS overrode them (CVE-2026-58251)."""
    literal, prefixed, deny, allow = 3, 4, 2, 3
    alice, all_users = f"User:{ALICE}", "User:*"
    denials = [(literal, OPEN, alice), (prefixed, "open-", all_users), (literal, "*", alice)]
    permissions = [(literal, OPEN, alice), (literal, "*", all_users), (prefixed, "open-orders", alice)]
    with kafka_of(broker, ROOT) as peer:
        rules = [_rule(*one, deny) for one in denials] + [_rule(*one, allow) for one in permissions]
        made = peer.call(CreateAclsRequest(creations=[AclCreation(**rule) for rule in rules]), 3).results
        assert {one.error_code for one in made} == {ErrorCode.NONE}
        # A permission that comes after the denial changes nothing, and neither do those that go.
        for number in range(len(denials)):
            assert writes(broker, OPEN) == [False] * 4, f"{number} denials removed"
            removed = _filter(*denials[number], deny)
            (result,) = peer.call(DeleteAclsRequest(filters=[removed]), 3).filter_results
            assert len(result.matching_acls) == 1
        assert writes(broker, OPEN) == [True] * 4
        for number in range(len(permissions)):
            assert writes(broker, OPEN) == [True] * 4, f"{number} permissions removed"
            peer.call(DeleteAclsRequest(filters=[_filter(*permissions[number], allow)]), 3)
        assert writes(broker, OPEN) == [False] * 4


def _filter(pattern: int, name: str, principal: str, permission: int) -> DeleteAclsFilter:
    rule = _rule(pattern, name, principal, permission)
    return DeleteAclsFilter(
        resource_type_filter=rule["resource_type"],
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=principal,
        host_filter="*",
        operation=rule["operation"],
        permission_type=permission,
    )
