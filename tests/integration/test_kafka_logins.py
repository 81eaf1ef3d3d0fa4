"""Logins over the Kafka protocol: what each mechanism admits, and what nobody may send before."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,  # pyright: ignore[reportPrivateImportUsage]
    ScramMechanism,  # pyright: ignore[reportPrivateImportUsage]
    UserScramCredentialDeletion,  # pyright: ignore[reportPrivateImportUsage]
    UserScramCredentialUpsertion,  # pyright: ignore[reportPrivateImportUsage]
)
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from kafka import KafkaProducer  # type: ignore[import-untyped]
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.metadata import MetadataRequest
from stele.wire.kafka.security import SaslAuthenticateRequest, SaslHandshakeRequest
from stele.wire.kafka.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

from app.clock import SystemClock
from app.cluster.credentials import CredentialStore
from app.cluster.sqlite.catalog import CatalogDatabase
from app.security.credentials import Credentials
from tests.support.kafka_peer import KafkaPeer, create_topic, put, request_frame

USER, PASSWORD = "alice", "zebra-Quartz-71"
TOPIC = "behind-a-login"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER, AUDIENCE = "https://issuer.example", "stele"
TIMEOUT_S = 240.0


def token(user: str = USER, *, lifetime_s: int = 600, key: Any = KEY) -> str:
    now_s = SystemClock().now_ms() // 1000
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + lifetime_s}
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})


def add_user(data_dir: Path, user: str = USER, password: str = PASSWORD) -> str:
    """Create the user and an API key in the data directory of a broker that does not run."""

    async def add() -> str:
        credentials = Credentials(CredentialStore(CatalogDatabase(data_dir / "metadata.sqlite")))
        await credentials.open()
        await credentials.add_user(user, password)
        made = await credentials.create_key(user, now_ms=0)
        await credentials.close()
        return made.token

    return asyncio.run(add())


@pytest.fixture(scope="module")
def key_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("issuer") / "jwks.json"
    public: dict[str, Any] = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    file.write_text(json.dumps({"keys": [{**public, "kid": "one"}]}))
    return file


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logins") / "data"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def api_key(data_dir: Path) -> str:
    return add_user(data_dir)


@pytest.fixture(scope="module")
def broker(data_dir: Path, api_key: str, key_set: Path) -> Iterator[BrokerProcess]:
    environment = {
        "STELE_KAFKA_AUTHENTICATION": "required",
        "STELE_OAUTH_JWKS": str(key_set),
        "STELE_OAUTH_ISSUER": ISSUER,
        "STELE_OAUTH_AUDIENCE": AUDIENCE,
        "STELE_TRACE_CONNECTIONS": "true",
        "STELE_TRACE_HEX": "true",
        # All of these tests come from one address.
        "STELE_LOGIN_FAILURES_FREE": "10000",
        # These tests are about logins alone.
        "STELE_AUTHORIZATION": "none",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        with KafkaPeer(broker) as peer:
            log_in(peer)
            create_topic(peer, TOPIC)
            put(peer, TOPIC, b"x")
        yield broker


def plain(user: str = USER, password: str = PASSWORD) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())


def handshake(peer: KafkaPeer, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return peer.call(SaslHandshakeRequest(mechanism=mechanism), version)


def log_in(peer: KafkaPeer, *, version: int = 2) -> Any:
    assert handshake(peer).error_code == ErrorCode.NONE
    answer = peer.call(plain(), version)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


def metadata(peer: KafkaPeer) -> Any:
    return peer.call(MetadataRequest(topics=None), 9)


def is_closed(peer: KafkaPeer) -> bool:
    return peer.rest() == b""


# ── clients ──


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_logs_in_with_a_password(broker: BrokerProcess, mechanism: str) -> None:
    configuration: dict[str, Any] = {
        "bootstrap.servers": broker.kafka_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    producer = Producer(configuration)
    producer.produce(TOPIC, b"y")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**configuration, "group.id": mechanism, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"x"
    consumer.close()


def refused_login(configuration: dict[str, Any]) -> str:
    errors: list[str] = []

    def note(error: object) -> None:
        errors.append(str(error))

    configuration = {**configuration, "error_cb": note}
    client: Any = AdminClient(configuration)
    while not any("uthentication" in error for error in errors):
        client.poll(TIMEOUT_S)
    return " ".join(errors)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_librdkafka_reports_a_wrong_password(broker: BrokerProcess, mechanism: str) -> None:
    error = refused_login(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "mallory",
            "sasl.password": PASSWORD,
        }
    )
    assert "Authentication failed" in error


def test_librdkafka_logs_in_with_a_token(broker: BrokerProcess) -> None:
    def fetch_token(_: str) -> tuple[str, float]:
        return token(), SystemClock().now_ms() / 1000 + 600

    configuration: dict[str, Any] = {
        "bootstrap.servers": broker.kafka_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": fetch_token,
    }
    client: Any = AdminClient(configuration)
    assert TOPIC in client.list_topics(timeout=TIMEOUT_S).topics


def test_librdkafka_without_a_login_is_closed(broker: BrokerProcess) -> None:
    client: Any = AdminClient({"bootstrap.servers": broker.kafka_bootstrap})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_aiokafka_logs_in(broker: BrokerProcess, mechanism: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.kafka_bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
    )
    await producer.start()
    await producer.send_and_wait(TOPIC, b"z")
    await producer.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_kafka_python_logs_in(broker: BrokerProcess, mechanism: str) -> None:
    configuration: dict[str, Any] = {
        "bootstrap_servers": broker.kafka_bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
    }
    producer = KafkaProducer(**configuration, sasl_plain_password=PASSWORD)
    producer.send(TOPIC, b"w").get(TIMEOUT_S)
    producer.close()


def test_librdkafka_administers_users(broker: BrokerProcess) -> None:
    client: Any = AdminClient(
        {
            "bootstrap.servers": broker.kafka_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("bob", info, b"the password of bob")
    for future in client.alter_user_scram_credentials([change]).values():
        future.result(TIMEOUT_S)
    described = client.describe_user_scram_credentials(["bob"])["bob"].result(TIMEOUT_S)
    (stored,) = described.scram_credential_infos
    assert (stored.mechanism, stored.iterations) == (ScramMechanism.SCRAM_SHA_256, 4096)
    with KafkaPeer(broker) as peer:
        handshake(peer)
        assert peer.call(plain("bob", "the password of bob"), 2).error_code == ErrorCode.NONE
        deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
        for future in client.alter_user_scram_credentials([deletion]).values():
            future.result(TIMEOUT_S)
        assert is_closed(peer), "the connections of a deleted user end"
    with KafkaPeer(broker) as peer:
        handshake(peer)
        answer = peer.call(plain("bob", "the password of bob"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# ── before a login ──


def test_nothing_but_a_login_is_answered_or_parsed(broker: BrokerProcess) -> None:
    with KafkaPeer(broker) as peer:
        peer.post(MetadataRequest(topics=None), 9)
        assert is_closed(peer)
    with KafkaPeer(broker) as peer:
        # An array of two billion topics: parsed, it would be refused with another log line (CVE-2022-34917).
        peer.send(struct.pack(">ihhi", 14, 3, 1, 7) + b"\xff\xff" + b"\x7f\xff\xff\xff")
        assert is_closed(peer)
    log = broker._stderr_path.read_text()
    assert "has not logged in" in log
    assert "Metadata v1 cannot be read" not in log


def test_requests_before_a_login_are_small(peer: KafkaPeer) -> None:
    peer.send(struct.pack(">i", 64 * 1024 + 1))
    assert is_closed(peer)


def test_api_versions_and_the_handshake_are_answered(peer: KafkaPeer) -> None:
    assert peer.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert list(handshake(peer).mechanisms) == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]


def test_an_unknown_mechanism_gets_the_list_and_the_end(peer: KafkaPeer) -> None:
    answer = handshake(peer, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "PLAIN" in answer.mechanisms
    assert is_closed(peer)


def test_authenticate_without_a_handshake_is_an_illegal_state(peer: KafkaPeer) -> None:
    assert peer.call(plain(), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(peer)


def test_another_request_in_the_middle_of_a_login_ends_it(peer: KafkaPeer) -> None:
    handshake(peer, "SCRAM-SHA-256")
    peer.post(ApiVersionsRequest(), 0)
    assert is_closed(peer)


@pytest.mark.parametrize(
    ("token_bytes", "mechanism"),
    [
        (b"\0alice\0a wrong password", "PLAIN"),
        (b"admin\0alice\0zebra-Quartz-71", "PLAIN"),
        (b"", "PLAIN"),
        (b"n,,n=alice,r=", "SCRAM-SHA-256"),
        (b"\xff" * 100, "OAUTHBEARER"),
    ],
)
def test_a_failed_login_gets_one_generic_text_and_the_end(
    peer: KafkaPeer, token_bytes: bytes, mechanism: str
) -> None:
    handshake(peer, mechanism)
    # What is sent along with it is not answered, even if it would be valid.
    peer.post_all(
        [
            (SaslAuthenticateRequest(auth_bytes=token_bytes), 2),
            (MetadataRequest(topics=None), 9),
            (plain(), 2),
        ]
    )
    _, answer = peer.next_answer()
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed: the user and password, the key or the token is not valid"
    )
    assert is_closed(peer)


def test_a_pipelined_login_lets_the_requests_after_it_in(peer: KafkaPeer) -> None:
    peer.post_all(
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1), (plain(), 1), (MetadataRequest(topics=None), 9)]
    )
    answers = [peer.next_answer()[1] for _ in range(3)]
    assert [answer.error_code for answer in answers[:2]] == [ErrorCode.NONE] * 2
    assert TOPIC in {topic.name for topic in answers[2].topics}


def test_a_refused_token_is_confirmed_before_the_end(peer: KafkaPeer) -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    handshake(peer, "OAUTHBEARER")
    message = f"n,,\1auth=Bearer {token(key=other)}\1\1".encode()
    answer = peer.call(SaslAuthenticateRequest(auth_bytes=message), 2)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
    answer = peer.call(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert is_closed(peer)


def test_an_api_key_logs_in_as_a_password_and_as_a_token(broker: BrokerProcess, api_key: str) -> None:
    with KafkaPeer(broker) as peer:
        handshake(peer)
        assert peer.call(plain(api_key.split("_")[1], api_key), 2).error_code == ErrorCode.NONE
    with KafkaPeer(broker) as peer:
        handshake(peer, "OAUTHBEARER")
        message = f"n,,\1auth=Bearer {api_key}\1\1".encode()
        assert peer.call(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == ErrorCode.NONE
        assert metadata(peer).topics


# ── bare tokens after a handshake of version 0 ──


def test_bare_tokens_log_in(peer: KafkaPeer) -> None:
    handshake(peer, "SCRAM-SHA-256", version=0)

    def bare(data: bytes) -> bytes:
        peer.send(struct.pack(">i", len(data)) + data)
        return peer.frame()

    challenge = bare(f"n,,n={USER},r=client".encode())
    assert bare(proof(challenge, PASSWORD)).startswith(b"v=")
    assert metadata(peer).topics


def test_a_wrong_bare_token_gets_no_answer(peer: KafkaPeer) -> None:
    handshake(peer, version=0)
    peer.send(struct.pack(">i", 0))
    assert is_closed(peer)


def proof(challenge: bytes, password: str) -> bytes:
    fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c=biws,r={fields['r']}"
    message = f"n={USER},r=client,{challenge.decode()},{final}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    made = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{final},p={base64.b64encode(made).decode()}".encode()


# ── after a login ──


def test_without_a_lifetime_nobody_logs_in_again(peer: KafkaPeer) -> None:
    assert log_in(peer).session_lifetime_ms == 0
    assert handshake(peer).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert peer.call(plain(), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert metadata(peer).topics, "the connection stays open"


def test_a_token_limits_the_session(peer: KafkaPeer) -> None:
    handshake(peer, "OAUTHBEARER")
    message = f"n,,\1auth=Bearer {token(lifetime_s=3600)}\1\1".encode()
    answer = peer.call(SaslAuthenticateRequest(auth_bytes=message), 2)
    assert 3_590_000 < answer.session_lifetime_ms <= 3_600_000
    assert handshake(peer, "OAUTHBEARER").error_code == ErrorCode.ILLEGAL_SASL_STATE, "too soon"
    assert is_closed(peer)


def test_a_token_that_has_just_expired_begins_no_session(peer: KafkaPeer) -> None:
    """Although clocks may differ by more."""
    handshake(peer, "OAUTHBEARER")
    message = f"n,,\1auth=Bearer {token(lifetime_s=-2)}\1\1".encode()
    answer = peer.call(SaslAuthenticateRequest(auth_bytes=message), 2)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.SASL_AUTHENTICATION_FAILED, 0)
    assert is_closed(peer)


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with users alice and bob, whose sessions last for two seconds."""
    data_dir = tmp_path_factory.mktemp("short-sessions") / "data"
    data_dir.mkdir()
    add_user(data_dir)
    add_user(data_dir, "bob")
    environment = {
        "STELE_KAFKA_AUTHENTICATION": "required",
        "STELE_CONNECTIONS_MAX_REAUTH_MS": "2000",
        "STELE_LOGIN_FAILURES_FREE": "10000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        yield broker


def until_a_second_login_is_allowed() -> None:
    """Logins of a connection must be a second apart, by the clock of the broker."""
    threading.Event().wait(1.1)


def test_a_client_logs_in_again_and_its_session_is_extended(short_sessions: BrokerProcess) -> None:
    with KafkaPeer(short_sessions) as peer:
        assert log_in(peer).session_lifetime_ms == 2000
        for _ in range(2):
            # The second round is past the end of the first session.
            until_a_second_login_is_allowed()
            assert metadata(peer).topics is not None
            assert log_in(peer).session_lifetime_ms == 2000
        assert metadata(peer).topics is not None


def test_a_session_that_has_ended_closes_the_connection_but_for_a_login(
    short_sessions: BrokerProcess,
) -> None:
    with KafkaPeer(short_sessions) as late, KafkaPeer(short_sessions) as silent:
        log_in(late)
        log_in(silent)
        until_a_second_login_is_allowed()
        until_a_second_login_is_allowed()
        log_in(late)
        assert metadata(late).topics is not None
        silent.send(request_frame(MetadataRequest(topics=None), 9))
        assert is_closed(silent)


@pytest.mark.parametrize(
    "second",
    [("PLAIN", "bob", PASSWORD), ("PLAIN", USER, "wrong-password"), ("SCRAM-SHA-512", USER, PASSWORD)],
    ids=["another user", "a wrong password", "another mechanism"],
)
def test_a_second_login_as_another_closes_the_connection(
    short_sessions: BrokerProcess, second: tuple[str, str, str]
) -> None:
    mechanism, user, password = second
    with KafkaPeer(short_sessions) as peer:
        log_in(peer)
        until_a_second_login_is_allowed()
        answer = handshake(peer, mechanism)
        if mechanism == "PLAIN":
            answer = peer.call(plain(user, password), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert is_closed(peer)


def test_other_requests_within_a_second_login_close_the_connection(short_sessions: BrokerProcess) -> None:
    with KafkaPeer(short_sessions) as peer:
        log_in(peer)
        until_a_second_login_is_allowed()
        assert handshake(peer).error_code == ErrorCode.NONE
        peer.send(request_frame(MetadataRequest(topics=None), 9))
        assert is_closed(peer)


# ── users (KIP-554) ──


def upsertion(**changes: Any) -> ScramCredentialUpsertion:
    fields: dict[str, Any] = {
        "name": "eve",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"p" * 32,
    }
    return ScramCredentialUpsertion(**{**fields, **changes})


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([("nobody", 1)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([], [upsertion(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(iterations=2**31 - 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(name="")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(name="ANONYMOUS")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(salted_password=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(salt=b"")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsertion(), upsertion()], ErrorCode.DUPLICATE_RESOURCE),
        ([("eve", 1)], [upsertion()], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_changes_of_users_that_are_refused(
    peer: KafkaPeer,
    deletions: list[tuple[str, int]],
    upsertions: list[ScramCredentialUpsertion],
    code: ErrorCode,
) -> None:
    log_in(peer)
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name, number in deletions],
        upsertions=upsertions,
    )
    (result,) = peer.call(request, 0).results
    assert result.error_code == code
    assert result.error_message
    described = peer.call(DescribeUserScramCredentialsRequest(users=[UserName(name="eve")]), 0)
    assert [r.error_code for r in described.results] == [ErrorCode.RESOURCE_NOT_FOUND]


def test_users_are_described_without_secrets(peer: KafkaPeer) -> None:
    log_in(peer)
    named = [UserName(name=USER), UserName(name="nobody"), UserName(name="twice"), UserName(name="twice")]
    results = {r.user: r for r in peer.call(DescribeUserScramCredentialsRequest(users=named), 0).results}
    assert [(i.mechanism, i.iterations) for i in results[USER].credential_infos] == [(1, 16_384), (2, 16_384)]
    assert results["nobody"].error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert results["twice"].error_code == ErrorCode.DUPLICATE_RESOURCE
    listed = peer.call(DescribeUserScramCredentialsRequest(users=None), 0).results
    assert USER in {result.user for result in listed}


def test_an_anonymous_client_cannot_take_over_a_user(tmp_path: Path) -> None:
    add_user(tmp_path)
    with run_broker(data_dir=tmp_path, environment={"STELE_KAFKA_AUTHENTICATION": "optional"}) as broker:
        takeover = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=USER, mechanism=2)], upsertions=[upsertion(name=USER)]
        )
        with KafkaPeer(broker) as peer:
            (result,) = peer.call(takeover, 0).results
            assert result.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            log_in(peer)
            (result,) = peer.call(takeover, 0).results
            assert result.error_code == ErrorCode.NONE


def test_logins_over_another_protocol_guard_the_users_too(tmp_path: Path) -> None:
    add_user(tmp_path)
    with (
        run_broker(
            data_dir=tmp_path,
            environment={"STELE_HTTP_AUTHENTICATION": "required", "STELE_AUTHORIZATION": "none"},
        ) as broker,
        KafkaPeer(broker) as peer,
    ):
        another = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion(name="mallory")])
        (result,) = peer.call(another, 0).results
        assert result.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        listed = peer.call(DescribeUserScramCredentialsRequest(users=None), 0)
        assert (listed.error_code, listed.results) == (ErrorCode.SASL_AUTHENTICATION_FAILED, [])


# ── what is written down ──


def test_logins_are_audited_and_no_secret_is_logged(broker: BrokerProcess, api_key: str) -> None:
    with KafkaPeer(broker) as peer:
        log_in(peer)
        metadata(peer)
    with KafkaPeer(broker) as peer:
        handshake(peer)
        peer.call(plain("mallory\nforged", "not the password"), 2)
        assert is_closed(peer)
    log = broker._stderr_path.read_text()
    lines = [
        json.loads(line.partition("stele.audit: ")[2]) for line in log.splitlines() if "stele.audit: " in line
    ]
    allowed = next(line for line in lines if line["verdict"] == "allowed" and line["mechanism"] == "PLAIN")
    assert (allowed["listener"], allowed["principal"], allowed["operation"]) == (
        "kafka",
        "User:alice",
        "login",
    )
    assert any(line["principal"] == "User:mallory\nforged" and line["verdict"] == "denied" for line in lines)
    assert "\nforged" not in log, "no name forges a line"
    assert "SaslAuthenticate" in log, "the trace is on"
    for secret in (PASSWORD, "not the password", api_key.split("_", 2)[2], token().rpartition(".")[2][:20]):
        assert secret not in log
        dumped = secret.encode()[:8].hex(" ")
        assert dumped not in log, log[max(0, log.find(dumped) - 1000) :][:1500]
