"""The URL picks the transport, and the environment picks the URL."""

from __future__ import annotations

import pytest
from stele import AsyncClient, Client
from stele.config import ClientConfig, Endpoint, url_from_environment


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("stele://localhost:1234", Endpoint("tcp", "localhost", 1234)),
        ("stele://localhost", Endpoint("tcp", "localhost", 9009)),
        ("stele://[::1]:1234/", Endpoint("tcp", "::1", 1234)),
        ("http://h:8080/", Endpoint("http", "h", 8080, "http://h:8080")),
        ("https://h/prefix/", Endpoint("http", "h", 443, "https://h/prefix")),
    ],
)
def test_a_url_names_a_transport_and_a_place(url: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(url) == endpoint


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_the_connection_of_a_group_has_the_timeouts_of_its_client(
    client_class: type[Client | AsyncClient],
) -> None:
    client = client_class("stele://127.0.0.1:1", timeout_s=7.0, connect_timeout_s=0.25)
    assert client.group("billing", "orders")._client.config == client.config


@pytest.mark.parametrize(
    "url", ["", "localhost:9009", "kafka://h:1", "stele://", "stele://h:port", "stele://h:1/path"]
)
def test_a_url_that_names_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|port"):
        ClientConfig(url=url)


def test_times_must_be_positive() -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        ClientConfig(url="stele://h", timeout_s=0)


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "stele://127.0.0.1:9009"),
        ({"STELE_URL": "http://a", "STELE_CLIENT_TCP_HOST": "b"}, "http://a"),
        ({"STELE_CLIENT_TCP_HOST": "b"}, "stele://b:9009"),
        ({"STELE_CLIENT_TCP_HOST": "b", "STELE_CLIENT_TCP_PORT": "7"}, "stele://b:7"),
        ({"STELE_CLIENT_TCP_HOST": "::1"}, "stele://[::1]:9009"),
        ({"STELE_CLIENT_HTTP_URL": "http://c"}, "http://c"),
        ({"STELE_CLIENT_HTTP_URL": "http://c", "STELE_CLIENT_TCP_PORT": "7"}, "stele://127.0.0.1:7"),
        ({"STELE_CLIENT_HTTP_URL": "http://c", "STELE_CLIENT_TCP_ENABLED": "true"}, "stele://127.0.0.1:9009"),
        ({"STELE_CLIENT_TCP_HOST": "b", "STELE_CLIENT_TCP_ENABLED": "false"}, "http://127.0.0.1:8080"),
        ({"STELE_CLIENT_HTTP_URL": "http://c", "STELE_CLIENT_TCP_ENABLED": "0"}, "http://c"),
    ],
)
def test_the_environment_decides(environment: dict[str, str], url: str) -> None:
    assert url_from_environment(environment) == url


@pytest.mark.parametrize(
    "environment",
    [{"STELE_CLIENT_TCP_ENABLED": "maybe"}, {"STELE_CLIENT_TCP_PORT": "x"}],
)
def test_a_variable_without_sense_is_named(environment: dict[str, str]) -> None:
    (name,) = environment
    with pytest.raises(ValueError, match=name):
        url_from_environment(environment)
