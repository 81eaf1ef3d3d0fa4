"""Named producers over both protocols (ADR-0015): a run that is repeated is recognised, an older one refused."""

from __future__ import annotations

import itertools

import pytest
from stele import Client, InvalidRequestError, UnknownTopicError
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import ProducerStateError
from stele.operations.produce import BeginProducerVersion, GetProducerState, Produce
from stele.records import OutgoingRecord
from stele.wire.messages import NamedProducerResponse

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"named-{next(_numbers)}"


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    broker = stele_broker_session
    return broker.binary_url if request.param == "tcp" else broker.http_url


def begin(client: Client, name: str, version: int) -> NamedProducerResponse:
    return client.call(BeginProducerVersion(name=name, version=version))


def produce(client: Client, topic: str, producer: NamedProducerResponse, sequence: int, count: int) -> None:
    records = [OutgoingRecord(1_795_000_000_000, None, b"%d" % i, []) for i in range(count)]
    operation = Produce(
        topic=topic,
        partition=0,
        records=records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
    )
    client.call(operation)


def state(client: Client, topic: str, producer_id: int) -> tuple[int, int, int]:
    found = client.call(GetProducerState(topic=topic, partition=0, producer_id=producer_id))
    return found.producer_epoch, found.last_sequence, found.last_offset


def test_a_run_that_is_repeated_finds_what_it_has_stored(url: str, name: str) -> None:
    with Client(url) as client:
        client.create_topic(name, partitions=1)
        first = begin(client, name, 3)
        assert not first.is_resumed
        assert state(client, name, first.producer_id) == (-1, -1, -1)
        client.produce(name, b"of somebody else")
        produce(client, name, first, 0, 4)
        again = begin(client, name, 3)
        assert (again.producer_id, again.producer_epoch, again.is_resumed) == (
            first.producer_id,
            first.producer_epoch,
            True,
        )
        assert state(client, name, first.producer_id) == (first.producer_epoch, 3, 4)


def test_a_newer_run_fences_the_one_before_and_an_older_one_is_refused(url: str, name: str) -> None:
    with Client(url) as client:
        client.create_topic(name, partitions=1)
        old = begin(client, name, 3)
        produce(client, name, old, 0, 1)
        new = begin(client, name, 7)
        assert (new.producer_id, new.is_resumed) == (old.producer_id, False)
        produce(client, name, new, 0, 1)
        with pytest.raises(ProducerStateError):
            produce(client, name, old, 1, 1)
        with pytest.raises(InvalidRequestError, match=r"version 3 of producer .* is older than version 7"):
            begin(client, name, 3)


def test_invalid_names_versions_and_partitions_are_refused(url: str, name: str) -> None:
    with Client(url) as client:
        for wrong in ("", "x" * 501):
            with pytest.raises(InvalidRequestError, match="1 to 500"):
                begin(client, wrong, 0)
        with pytest.raises(InvalidRequestError, match="version"):
            begin(client, name, -1)
        with pytest.raises(UnknownTopicError):
            state(client, "no-such-topic", 1)


def test_both_listeners_and_the_time_after_a_crash_know_the_same_producers(name: str) -> None:
    with run_broker() as broker, Client(broker.binary_url) as tcp, Client(broker.http_url) as http:
        tcp.create_topic(name, partitions=1)
        producer = begin(tcp, name, 3)
        produce(tcp, name, producer, 0, 5)
        broker.kill()
        broker.start()
        again = begin(http, name, 3)
        assert (again.producer_id, again.producer_epoch, again.is_resumed) == (
            producer.producer_id,
            producer.producer_epoch,
            True,
        )
        assert state(http, name, producer.producer_id) == (producer.producer_epoch, 4, 4)


def test_a_run_that_was_left_for_too_long_is_refused(name: str) -> None:
    environment = {"STELE_PRODUCER_ID_EXPIRATION_MS": "1000"}
    with run_broker(environment=environment) as broker, Client(broker.binary_url) as client:
        begin(client, name, 3)
        refused = None
        while refused is None:
            try:
                begin(client, name, 3)
            except InvalidRequestError as error:
                refused = str(error)
        assert "began more than 1000 ms ago" in refused
        assert not begin(client, name, 4).is_resumed
