"""Authorized operations, as the numbers of Kafka (KIP-430)."""

from __future__ import annotations

import pytest

from app.tcp.kafka.guards import authorized
from app.tcp.kafka.handlers.groups import groups


def test_the_operations_are_those_of_a_broker_without_an_authorizer() -> None:
    assert (authorized.on_topic(), authorized.on_group(), authorized.on_cluster()) == (3576, 3400, 8096)


def test_a_request_without_the_question_gets_the_smallest_number() -> None:
    asked = (authorized.on_topic, authorized.on_group, authorized.on_cluster)
    assert {one(is_asked=False) for one in asked} == {-(2**31)}


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::ff:1", "/2001:db8:0:0:0:0:ff:1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1"),
        ("?", "?"),
        ("", ""),
    ],
)
def test_the_host_of_a_member_is_written_as_java_writes_it(host: str, written: str) -> None:
    assert groups.as_java_address(host) == written
