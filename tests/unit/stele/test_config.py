"""The URL picks the transport, and the environment picks the URL."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from stele import AsyncClient, Client
from stele.cli import stele
from stele.config import NO_FILES, ClientConfig, Endpoint, TlsFiles, has_password, url_from_environment


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("stele://localhost:1234", Endpoint("tcp", "localhost", 1234)),
        ("stele://localhost", Endpoint("tcp", "localhost", 9009)),
        ("stele://[::1]:1234/", Endpoint("tcp", "::1", 1234)),
        ("http://h:8080/", Endpoint("http", "h", 8080, "http://h:8080")),
        ("https://h/prefix/", Endpoint("http", "h", 443, "https://h/prefix", NO_FILES)),
        ("stele+tls://h", Endpoint("tcp", "h", 9009, tls=NO_FILES)),
        (
            "stele+tls://h:1?ca_file=/a/ca.pem&certificate_file=c.pem&key_file=a%20b.key",
            Endpoint(
                "tcp", "h", 1, tls=TlsFiles(ca_file="/a/ca.pem", certificate_file="c.pem", key_file="a b.key")
            ),
        ),
        (
            "https://h:8443/?ca_file=ca.pem",
            Endpoint("http", "h", 8443, "https://h:8443", TlsFiles(ca_file="ca.pem")),
        ),
    ],
)
def test_a_url_names_a_transport_and_a_place(url: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(url) == endpoint


def test_a_url_may_name_several_brokers() -> None:
    endpoint = Endpoint.parse("https://u:p@a:1,b,[::1]:3/prefix?ca_file=c.pem")
    assert [(one.host, one.port, one.http_url) for one in endpoint.all] == [
        ("a", 1, "https://a:1/prefix"),
        ("b", 443, "https://b/prefix"),
        ("::1", 3, "https://[::1]:3/prefix"),
    ]
    assert {(one.credentials.user, one.credentials.password, one.tls) for one in endpoint.all} == {
        ("u", "p", TlsFiles(ca_file="c.pem"))
    }
    binary = Endpoint.parse("stele://a,b:2")
    assert [(one.transport, one.host, one.port) for one in binary.all] == [
        ("tcp", "a", 9009),
        ("tcp", "b", 2),
    ]


@pytest.mark.parametrize(
    ("url", "short"),
    [
        ("http://a:1,http://b:2", "http://a:1,b:2"),
        ("http://a:1/,http://b:2/", "http://a:1,b:2/"),
        (
            "stele+tls://u:p@a,stele+tls://b,stele+tls://c?ca_file=c.pem",
            "stele+tls://u:p@a,b,c?ca_file=c.pem",
        ),
    ],
)
def test_the_scheme_may_be_repeated_before_each_broker(url: str, short: str) -> None:
    assert Endpoint.parse(url) == Endpoint.parse(short)


@pytest.mark.parametrize(
    "url",
    [
        "http://a,stele://b",
        "http://a, http://b",
        "http://a,https://b",
        "http://a/prefix,http://b/prefix",
        "https://a?ca_file=c.pem,https://b?ca_file=c.pem",
        "http://a,http://u:p@b",
        "stele://u:p@a,stele://u:p@b",
    ],
)
def test_what_belongs_to_the_whole_url_cannot_differ_between_its_brokers(url: str) -> None:
    with pytest.raises(ValueError, match="write them once for all") as caught:
        ClientConfig(url=url)
    assert "u:p" not in str(caught.value)


def test_a_password_is_not_in_the_error_although_the_first_scheme_is_missing() -> None:
    with pytest.raises(ValueError, match="not the URL of a broker") as caught:
        ClientConfig(url="ada:secret@a:8080,http://b:8080")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["stele://u:p@a", "stele://a,stele://u:p@b", "http://u:p,q@a", "u:p@a"])
def test_a_password_is_found_in_any_part_of_a_url(url: str) -> None:
    assert has_password(url)
    assert not has_password(url.replace(":p", "").replace(",q", ""))


def test_the_login_and_the_files_of_a_client_are_for_all_its_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STELE_USER", "alice")
    monkeypatch.setenv("STELE_PASSWORD", "a-long-password")
    config = ClientConfig(url="stele+tls://a,b", tls=TlsFiles(ca_file="c.pem"))
    assert [(one.host, one.credentials.user, one.tls) for one in config.endpoint.all] == [
        ("a", "alice", TlsFiles(ca_file="c.pem")),
        ("b", "alice", TlsFiles(ca_file="c.pem")),
    ]


@pytest.mark.parametrize("url", ["stele://a,", "stele://a,b:port", "http://,a", "stele://a,b@c/path"])
def test_a_url_with_a_broken_name_among_several_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|port"):
        ClientConfig(url=url)


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_the_connection_of_a_group_has_the_timeouts_of_its_client(
    client_class: type[Client | AsyncClient],
) -> None:
    client = client_class("stele://127.0.0.1:1", timeout_s=7.0, connect_timeout_s=0.25)
    assert client.group("billing", "orders")._client.config == client.config


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:9009",
        "kafka://h:1",
        "stele://",
        "stele://h:port",
        "stele://h:1/path",
        "stele://h?ca_file=x",
    ],
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


@pytest.mark.parametrize("url", ["stele+tls://h?cafile=x", "https://h?ca_file="])
def test_an_option_of_a_url_that_does_not_exist_or_is_empty_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the options are ca_file, certificate_file, key_file"):
        ClientConfig(url=url)


def test_files_without_tls_are_refused() -> None:
    with pytest.raises(ValueError, match=r"write stele\+tls://HOST:PORT"):
        ClientConfig(url="stele://h", tls=TlsFiles(ca_file="ca.pem"))


def test_arguments_precede_the_url_and_the_url_precedes_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STELE_CA_FILE", "environment-ca")
    monkeypatch.setenv("STELE_CERTIFICATE_FILE", "environment-certificate")
    monkeypatch.setenv("STELE_KEY_FILE", "environment-key")
    config = ClientConfig(
        url="stele+tls://h?ca_file=url-ca&certificate_file=url-certificate",
        tls=TlsFiles(ca_file="argument-ca"),
    )
    # The key belongs to the certificate: that of the environment is another's.
    assert config.endpoint.tls == TlsFiles(ca_file="argument-ca", certificate_file="url-certificate")
    assert ClientConfig(url="https://h").endpoint.tls == TlsFiles(
        ca_file="environment-ca", certificate_file="environment-certificate", key_file="environment-key"
    )
    assert ClientConfig(url="http://h").endpoint.tls is None


@pytest.mark.parametrize("client_class", [Client, AsyncClient])
def test_files_that_cannot_be_used_are_named(
    client_class: type[Client | AsyncClient], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=r"ca_file .*none\.pem cannot be used: No such file"):
        client_class("stele+tls://h", ca_file=tmp_path / "none.pem")
    with pytest.raises(ValueError, match=r"certificate_file .*none\.pem and key_file"):
        client_class("https://h", certificate_file=tmp_path / "none.pem")


_SECRET = "s3cret-Zephyr"


@pytest.mark.parametrize("scheme", ["stele", "stele+tls", "http", "https", "ftp", "postgresql"])
@pytest.mark.parametrize(
    "rest",
    [
        "alice:{}/x@host:9009", "alice:{}#x@host:9009", "alice:{}?x@host:9009", "alice:x/{}@host:9009",
        "alice:x#{}@host:9009", "alice:x?{}@host:9009", "alice:12/{}@host:9009", "alice:12#{}@host:9009",
        "alice:12?{}@host:9009", "alice:x[{}@host:9009", "alice:{}@host:99999", "alice:{}@host:port", "alice:{}@",
        "alice:{}@:9009", "alice:x@one:9009,bob:{}@two:9009", "host:9009?password={}",
        "host:9009?ca_file=a&token={}", "host:9009#{}", "host:9009?{}",
    ],
)  # fmt: skip
def test_a_url_that_is_refused_is_not_repeated_with_its_password(scheme: str, rest: str) -> None:
    url = f"{scheme}://{rest.format(_SECRET)}"
    for make in (Endpoint.parse, Client, AsyncClient):
        with pytest.raises(ValueError) as refused:
            make(url)
        assert _SECRET not in f"{refused.value}{refused.value.__cause__}"
    done = CliRunner().invoke(stele, ["topics", "list"], env={"STELE_URL": url})
    assert done.exit_code == 2
    assert _SECRET not in done.output


@pytest.mark.parametrize(
    "url",
    [
        "alice:{}@host:9009",
        "alice:{}@host",
        "stele:alice:{}@host",
        "stele:/alice:{}@host",
        "//alice:{}@host",
        "alice:{}",
    ],
)
def test_a_url_with_a_password_and_without_a_scheme_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not the URL of a broker") as refused:
        Client(url.format(_SECRET))
    assert _SECRET not in str(refused.value)


def test_no_repr_of_a_client_has_the_password() -> None:
    for scheme in ("stele", "stele+tls", "http", "https"):
        client = Client(f"{scheme}://alice:{_SECRET}@host:9009")
        shown = (
            client,
            client.config,
            client.config.endpoint,
            client.config.credentials,
            vars(client.transport),
        )
        assert _SECRET not in repr(shown)
        client.close()
