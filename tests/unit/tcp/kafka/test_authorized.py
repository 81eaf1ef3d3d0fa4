"""The numbers in which Kafka says what a client may do (KIP-430)."""

from __future__ import annotations

import pytest

from app.tcp.kafka.handlers import authorized, groups


def test_they_are_those_of_a_broker_without_an_authorizer() -> None:
    assert (authorized.on_topic(), authorized.on_group(), authorized.on_cluster()) == (3576, 3400, 8096)


def test_without_the_request_flag_authorized_operations_are_the_smallest_number() -> None:
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
def test_a_member_is_where_java_would_write_it(host: str, written: str) -> None:
    assert groups.as_java_address(host) == written
