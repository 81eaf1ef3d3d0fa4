"""What the client of the schema registry does when the registry fails, is busy, or is something else."""

from __future__ import annotations

import asyncio
import base64
import inspect
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from stele import (
    AsyncSchemaRegistry,
    AuthenticationError,
    BrokerUnavailableError,
    IncompatibleSchemaError,
    RegistryError,
    RequestTimedOutError,
    Schema,
    SchemaRegistry,
    SteleClientError,
    UnknownSchemaError,
)
from stele.errors import AuthorizationError, ProtocolError, ThrottledError

from tests.support.scripted_registry import scripted_registry

STRING = Schema('"string"')


def ask(kind: str, url: str, do: Callable[[Any], Any], **options: Any) -> Any:
    """Call ``do`` with a client of either kind."""
    if kind == "blocking":
        with SchemaRegistry(url, **options) as registry:
            return do(registry)

    async def run() -> Any:
        async with AsyncSchemaRegistry(url, **options) as registry:
            answer = do(registry)
            return await answer if inspect.isawaitable(answer) else answer

    return asyncio.run(run())


both = pytest.mark.parametrize("kind", ["blocking", "asyncio"])


@both
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_call_is_repeated_until_the_registry_serves_it(kind: str, status: int) -> None:
    busy = status, {"error_code": status * 100 + 1, "message": "not now"}
    with scripted_registry([busy, busy, (200, ["a"])]) as registry:
        assert ask(kind, registry.url, lambda client: client.subjects()) == ["a"]
        assert len(registry.requests) == 3


@both
def test_the_other_registries_of_the_url_are_asked_in_turn(kind: str) -> None:
    broken = 500, {"error_code": 50001, "message": "broken"}
    with scripted_registry([broken]) as first, scripted_registry([broken]) as second:
        second.answers.append((200, ["a"]))
        url = f"{first.url},127.0.0.1:{second.port}"
        assert ask(kind, url, lambda client: client.subjects()) == ["a"]
        asked = sorted((len(first.requests), len(second.requests)))
        # It begins at a random one.
        assert asked in ([1, 2], [2, 2]), asked


@both
def test_a_registry_that_is_down_is_left_out(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone: int = closed.getsockname()[1]
    with scripted_registry([(200, ["a"])]) as registry:
        for _ in range(4):
            assert ask(kind, f"http://127.0.0.1:{gone},127.0.0.1:{registry.port}", subjects) == ["a"]
    with pytest.raises(BrokerUnavailableError, match=str(gone)):
        ask(kind, f"http://127.0.0.1:{gone}", subjects, connect_timeout_s=0.1)


def subjects(client: Any) -> Any:
    return client.subjects()


@both
def test_a_failure_that_lasts_is_raised(kind: str) -> None:
    with scripted_registry([(500, {"error_code": 50001, "message": "the disk is full"})]) as registry:
        with pytest.raises(RegistryError, match="the disk is full") as raised:
            ask(kind, registry.url, subjects)
        assert raised.value.error_code == 50001
        assert raised.value.retriable
        assert len(registry.requests) == 9


@both
def test_a_deletion_is_not_repeated_when_it_may_have_been_executed(kind: str) -> None:
    def delete(client: Any) -> Any:
        return client.delete_subject("a")

    with scripted_registry([(500, {"error_code": 50002, "message": "too late"}), (200, [1])]) as registry:
        with pytest.raises(RegistryError, match="too late"):
            ask(kind, registry.url, delete)
        assert len(registry.requests) == 1
    with scripted_registry([(429, {"error_code": 429, "message": "busy"}), (200, [1])]) as registry:
        assert ask(kind, registry.url, delete) == [1]


@both
@pytest.mark.parametrize(
    ("status", "error_code", "error"),
    [
        (401, 40101, AuthenticationError),
        (403, 40301, AuthorizationError),
        (404, 40401, UnknownSchemaError),
        (404, 40403, UnknownSchemaError),
        (409, 409, IncompatibleSchemaError),
        (409, 40901, IncompatibleSchemaError),
        (422, 42201, RegistryError),
    ],
)
def test_a_refusal_has_a_type_and_is_not_repeated(
    kind: str, status: int, error_code: int, error: type[SteleClientError]
) -> None:
    with scripted_registry([(status, {"error_code": error_code, "message": "no"})]) as registry:
        with pytest.raises(error, match="no") as raised:
            ask(kind, registry.url, lambda client: client.register("a", STRING))
        assert type(raised.value) is error
        assert len(registry.requests) == 1


@both
def test_the_last_answer_decides_the_type(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("registry", "async_registry"):
        monkeypatch.setattr(f"stele.registry.{module}.ATTEMPTS_MAX", 1)
    for status, error in ((429, ThrottledError), (504, RequestTimedOutError)):
        with scripted_registry([(status, b"<html>")]) as registry, pytest.raises(error):
            ask(kind, registry.url, subjects)


@both
@pytest.mark.parametrize("answer", [b"<html>", {"a": 1}, [None], {"id": "x"}])
def test_what_is_no_registry_is_named(kind: str, answer: Any) -> None:
    with (
        scripted_registry([(200, answer)]) as registry,
        pytest.raises(ProtocolError, match="correct the URL"),
    ):
        ask(kind, registry.url, lambda client: client.register("a", STRING))
    with scripted_registry([(404, b"<html>")]) as registry:
        with pytest.raises(RegistryError, match="is this the URL of a schema registry") as raised:
            ask(kind, registry.url, subjects)
        assert not isinstance(raised.value, UnknownSchemaError)


def test_a_url_of_the_binary_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="over HTTP"):
        SchemaRegistry("stele://127.0.0.1:9009")


@both
def test_requests_log_in_as_those_of_other_clients_do(kind: str) -> None:
    with scripted_registry([(200, [])]) as registry:
        ask(kind, registry.url, subjects, user="ada", password="pass:word")
        ask(kind, registry.url, subjects, token=lambda: "abc")
        ask(kind, registry.url.replace("http://", "http://ada:pw@"), subjects)
        sent = [headers["authorization"] for _, _, headers, _ in registry.requests]
    assert sent == [
        f"Basic {base64.b64encode(b'ada:pass:word').decode()}",
        "Bearer abc",
        f"Basic {base64.b64encode(b'ada:pw').decode()}",
    ]


@both
def test_names_are_quoted_and_parameters_written_as_every_registry_reads_them(kind: str) -> None:
    with scripted_registry(
        [(200, [1]), (200, {"is_compatible": True}), (200, {"mode": "READONLY"})]
    ) as registry:
        ask(kind, registry.url, lambda client: client.versions("a/b c+d%é", deleted=True))
        ask(kind, registry.url, lambda client: client.check("..", STRING, "latest"))
        ask(kind, f"{registry.url}/a/path/", lambda client: client.mode_of("s"))
    assert registry.paths == [
        "GET /subjects/a%2Fb%20c%2Bd%25%C3%A9/versions?deleted=true",
        "POST /compatibility/subjects/%2E%2E/versions/latest?verbose=true&normalize=false",
        "GET /a/path/mode/s?defaultToGlobal=true",
    ]
    _, _, headers, body = registry.requests[1]
    assert body == {"schema": '"string"'}
    assert headers["content-type"] == "application/vnd.schemaregistry.v1+json"


# ── the cache ──


def test_a_schema_is_asked_for_once_whoever_asks() -> None:
    with scripted_registry([(200, {"schema": '"int"'})]) as registry, SchemaRegistry(registry.url) as client:
        start = threading.Barrier(8)
        found: list[Schema] = []

        def load() -> None:
            start.wait()
            found.append(client.schema(7))

        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [Schema('"int"')] * 8
        client.schema(7)
        # A thread that asks just after the answer may ask once more.
        assert 1 <= len(registry.requests) <= 2


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stele.registry.registry.CACHED_MAX", 2)
    with scripted_registry([(200, {"schema": '"int"'})]) as registry, SchemaRegistry(registry.url) as client:
        for schema_id in (1, 2, 3, 3, 2, 1):
            client.schema(schema_id)
        assert [path.rpartition("/")[2] for path in registry.paths] == ["1", "2", "3", "1"]


def test_an_id_is_that_of_a_context() -> None:
    with scripted_registry([(200, {"schema": '"int"'})]) as registry, SchemaRegistry(registry.url) as client:
        client.schema(1)
        client.schema(1, subject=":.other:")
        client.schema("0c2b9a8e-0000-4000-8000-000000000001")
        assert registry.paths == [
            "GET /schemas/ids/1",
            "GET /schemas/ids/1?subject=%3A.other%3A",
            "GET /schemas/guids/0c2b9a8e-0000-4000-8000-000000000001",
        ]


def test_an_unknown_schema_is_asked_for_again() -> None:
    unknown = 404, {"error_code": 40403, "message": "Schema not found"}
    with (
        scripted_registry([unknown, (200, {"schema": '"int"'})]) as registry,
        SchemaRegistry(registry.url) as client,
    ):
        with pytest.raises(UnknownSchemaError):
            client.schema(7)
        assert client.schema(7) == Schema('"int"')
