"""Tokens that expire while a client works: one that renews them goes on, one that does not is refused.

``tests/conformance/test_security.py`` has other clients.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.support.locked_broker import OAUTHBEARER, LockedBroker, locked_broker

pytestmark = pytest.mark.long

# librdkafka renews a token after 80 % of its lifetime and up to a second, and logs in again after 90 % of its session.
LIFETIME_S = 6
# The application says that its tokens end earlier, so that each is renewed before the next login.
MARGIN_S = 2
# Logins of one connection: the first, and those with a renewed token.
LOGINS = 4
# Messages between two looks at the log of the broker.
ROUND = 50
TIMEOUT_S = 120.0

Fetch = Callable[[str], tuple[str, float]]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with locked_broker(tmp_path_factory.mktemp("locked")) as broker:
        yield broker


def configuration(locked: LockedBroker, fetch_token: Fetch, errors: list[KafkaError]) -> dict[str, Any]:
    return {
        "bootstrap.servers": locked.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(locked.ca_file),
        "sasl.mechanism": OAUTHBEARER,
        "oauth_cb": fetch_token,
        "error_cb": errors.append,
        # It tries often, and logs each time.
        "log_level": 0,
    }


def with_expiry(token: str) -> tuple[str, float]:
    """What a callback returns: the token, and when it ends in seconds since the epoch."""
    return token, float(jwt.decode(token, options={"verify_signature": False})["exp"])


def test_a_client_that_renews_its_token_loses_nothing(locked: LockedBroker) -> None:
    user = locked.add_user(may_do_everything=True)
    topic = locked.make_topic()
    renewals: Counter[str] = Counter()
    # A client that was slow to renew its token reports that here, connects again and goes on.
    errors: list[KafkaError] = []

    def connect(name: str) -> dict[str, Any]:
        def renew(_: str) -> tuple[str, float]:
            renewals[name] += 1
            token, ends_s = with_expiry(locked.token(user, lifetime_s=LIFETIME_S))
            return token, ends_s - MARGIN_S

        return configuration(locked, renew, errors)

    producer = Producer({**connect("producer"), "enable.idempotence": True})
    consumer = Consumer({**connect("consumer"), "group.id": user, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    sent: list[bytes] = []
    received: list[bytes | None] = []
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    def work() -> None:
        """Write some messages, and read them."""
        for _ in range(ROUND):
            sent.append(str(len(sent)).encode())
            producer.produce(topic, sent[-1], on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
        end_s = time.monotonic() + TIMEOUT_S
        while len(received) < len(sent):
            assert time.monotonic() < end_s, "a message did not come"
            for message in consumer.consume(ROUND, timeout=1):
                if message.error() is None:
                    received.append(message.value())
        consumer.commit()

    def times_again() -> list[int]:
        """How many times each connection has logged in again, the most patient ones first."""
        return sorted((count - 1 for count in locked.logins(user).values()), reverse=True)

    try:
        end_s = time.monotonic() + TIMEOUT_S
        # One connection of the producer and one of the consumer, at least.
        while len(again := times_again()) < 2 or again[1] < LOGINS - 1:
            assert time.monotonic() < end_s, f"logged in again {again} times"
            work()
        work()
    finally:
        consumer.close()
    assert received == sent
    assert refused == []
    assert min(renewals["producer"], renewals["consumer"]) >= LOGINS


@pytest.mark.parametrize("is_expired", [True, False], ids=["the expired token again", "no token"])
def test_a_client_that_does_not_renew_its_token_gets_an_error_of_its_library(
    locked: LockedBroker, is_expired: bool
) -> None:
    user = locked.add_user(may_do_everything=True)
    topic = locked.make_topic()
    token = locked.token(user, lifetime_s=LIFETIME_S)
    asked = 0
    errors: list[KafkaError] = []

    def fetch_token(_: str) -> tuple[str, float]:
        nonlocal asked
        asked += 1
        if not is_expired and asked > 1:
            raise RuntimeError("the issuer is away")
        _, ends_s = with_expiry(token)
        # With an hour more, the application believes that the token lasts.
        return token, ends_s + 3600 if is_expired else ends_s

    producer = Producer(configuration(locked, fetch_token, errors))
    delivered: list[KafkaError | None] = []
    producer.produce(topic, b"before", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None]

    text = "SASL authentication error: Authentication failed" if is_expired else "Failed to acquire SASL"
    end_s = time.monotonic() + TIMEOUT_S
    while not any(error.code() == KafkaError._AUTHENTICATION and text in error.str() for error in errors):
        assert time.monotonic() < end_s, errors
        producer.poll(1)
    # Its session ends with its token, and what it sends then is not stored.
    produced = 0
    while locked.connections(user):
        assert time.monotonic() < end_s, "the connection stays open"
        producer.produce(topic, b"after", on_delivery=lambda error, _: delivered.append(error))
        produced += 1
        producer.poll(0.1)
    stored = locked.values(topic)
    assert stored == [b"before"] + [b"after"] * (len(stored) - 1)
    # The client need not have heard of all that was stored.
    assert len(delivered) <= len(stored) <= 1 + produced
    assert delivered == [None] * len(delivered)
    producer.produce(topic, b"late", on_delivery=lambda error, _: delivered.append(error))
    producer.poll(1)
    producer.purge()
    assert producer.flush(TIMEOUT_S) == 0
    assert b"late" not in locked.values(topic)
