"""No URL that a user gives is taken for another one, and no message shows a password in it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence

import pytest
from click.testing import CliRunner
from stele import AsyncClient, Client
from stele.cdc.options import CdcOptions
from stele.cdc.postgres.connection import describe_dsn
from stele.cli import stele
from stele.config import ClientConfig, shown_url

from app.clock import SystemClock
from app.postgres.connector import connection_string
from app.security.jwt_keys import JwtKeys
from app.storage.shared.store.urls import open_object_store

SECRET = "s3cret"
SCHEMES = ("stele", "stele+tls", "http", "https")
# After the scheme: a password with what ends a host, is stripped, or cannot be part of one.
AFTER_SCHEME = (
    *(f"alice:{SECRET}{ends}x@127.0.0.1:9" for ends in "/#?[]\n\t\0℀"),
    *(f"alice:1{ends}{SECRET}@127.0.0.1:9" for ends in ("/", "#", "/#")),
    f"alice:{SECRET}",
    f"alice:{SECRET}@",
    f"alice:{SECRET}@a:1,alice:{SECRET}@b:1",
    f"alice:{SECRET}@a:port",
)
BROKER_URLS = (
    *(f"{scheme}://{rest}" for scheme in SCHEMES for rest in AFTER_SCHEME),
    *(rest for rest in AFTER_SCHEME if "port" not in rest),
    f"alice:{SECRET}@127.0.0.1:9",
    f"alice:{SECRET}@a:1,http://b:1",
    f"stele:alice:{SECRET}@127.0.0.1:9",
    f"stele:/alice:{SECRET}@127.0.0.1:9",
    f"sttele://alice:{SECRET}@127.0.0.1:9",
    f"stele://a:1,stele://alice:{SECRET}@b:1",
)
DSNS = (
    f"postgresql://alice:{SECRET}/x@127.0.0.1:9/db",
    f"postgresql://alice:1/{SECRET}@127.0.0.1:9/db",
    f"postgresql://alice:{SECRET}@x@127.0.0.1:9/db",
    f"postgresql://alice:{SECRET}%zz@127.0.0.1:9/db",
    f"postgresql://alice:{SECRET}",
    f"alice:{SECRET}@127.0.0.1/db",
    f"host=127.0.0.1 password={SECRET} x",
    f"host=127.0.0.1 pasword={SECRET}",
)
STORES = (
    *(f"s3://KEY:{SECRET}{ends}x@bucket/prefix" for ends in ("", *"/#?[]\n\0℀")),
    *(
        f"{scheme}://b?account=a&endpoint=http://KEY:{SECRET}{ends}x@h:1"
        for scheme in ("s3", "gs", "az")
        for ends in ("", *"/#?[&\n")
    ),
    f"KEY:{SECRET}@bucket",
    f"KEY:{SECRET}/x@bucket",
    f"s3:/KEY:{SECRET}@bucket",
    f"s4://KEY:{SECRET}@bucket",
    f"s3://bucket?{SECRET}@x",
)
KEY_SOURCES = tuple(
    f"{scheme}alice:{SECRET}{ends}x@127.0.0.1/keys"
    for scheme in ("http://", "https://", "ftp://", "")
    for ends in ("", *"/#?[℀")
)


def command(*arguments: str, environment: str | None = None) -> Callable[[str], object]:
    """Return a call of the command line with a URL as its last argument, or in the environment."""

    def call(url: str) -> object:
        if environment is None:
            result = CliRunner().invoke(stele, [*arguments, url])
        else:
            result = CliRunner(env={environment: url}).invoke(stele, list(arguments))
        if result.exit_code not in (1, 2):
            return result.output
        raise ValueError(result.output)

    return call


def spark(option: str, **others: str) -> Callable[[str], object]:
    def call(url: str) -> object:
        from stele.spark.options import Use
        from stele.spark.parsing import parse_read_options

        return parse_read_options({option: url, "subscribe": "t", **others}, Use.BATCH_READ)

    return call


def spark_write(url: str) -> object:
    from stele.spark.options import Use
    from stele.spark.parsing import parse_write_options

    return parse_write_options({"url": url, "topic": "t"}, Use.STREAM_WRITE)


CDC = ("cdc", "--tables", "t", "--slot", "s")
ENTRIES: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
    "Client": (Client, BROKER_URLS),
    "AsyncClient": (AsyncClient, BROKER_URLS),
    "ClientConfig": (lambda url: ClientConfig(url=url), BROKER_URLS),
    "--url": (command("topics", "list", "--url"), BROKER_URLS),
    "STELE_URL": (command("topics", "list", environment="STELE_URL"), BROKER_URLS),
    "top --url": (command("top", "--once", "--url"), BROKER_URLS),
    "user list --url": (command("user", "list", "--url"), BROKER_URLS),
    "cdc --broker": (
        command(*CDC, "--dsn", "postgresql://127.0.0.1:1/db", "--broker"),
        BROKER_URLS,
    ),
    "CdcOptions": (lambda url: CdcOptions(dsn="postgresql://h/db", tables=("t",), broker=url), BROKER_URLS),
    "cdc --dsn": (command(*CDC, "--dsn"), DSNS),
    "STELE_CDC_DSN": (command(*CDC, environment="STELE_CDC_DSN"), DSNS),
    "describe_dsn": (describe_dsn, DSNS),
    "postgres_url": (lambda dsn: connection_string(dsn, "stele"), DSNS),
    "object_store": (open_object_store, STORES),
    "oauth_jwks": (lambda source: JwtKeys(source, clock=SystemClock()), KEY_SOURCES),
    "Spark url": (spark("url"), BROKER_URLS),
    "Spark url, http": (spark("url", transport="http"), BROKER_URLS),
    "Spark kafka.bootstrap.servers": (spark("kafka.bootstrap.servers"), BROKER_URLS),
    "Spark both": (spark("url", **{"kafka.bootstrap.servers": f"alice:{SECRET}@h"}), BROKER_URLS),
    "Spark write": (spark_write, BROKER_URLS),
}


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_url_with_a_stray_password_is_refused_and_the_password_not_shown(
    entry: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if entry.startswith("Spark"):
        pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")
    monkeypatch.delenv("STELE_URL", raising=False)
    caplog.set_level(logging.DEBUG)
    call, urls = ENTRIES[entry]
    for url in urls:
        with pytest.raises(Exception) as refused:
            pytest.fail(f"{url!r} is taken: {call(url)!r}")
        # As an application without a handler prints it, with the errors that led to it.
        shown = "".join(traceback.format_exception_only(refused.value))
        error: BaseException | None = refused.value
        while error is not None:
            shown += str(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        assert SECRET not in shown + caplog.text, url


@pytest.mark.parametrize("url", [f"stele://alice:{SECRET}@a:1", f"alice:{SECRET}@a:1", "stele://a:1"])
@pytest.mark.parametrize("option", ["url", "kafka.bootstrap.servers"])
def test_spark_gets_a_login_only_without_its_password(option: str, url: str) -> None:
    pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")
    if SECRET in url:
        with pytest.raises(Exception, match="holds a password, and Spark shows options") as refused:
            spark(option)(url)
        assert SECRET not in str(refused.value)
    named = url.replace(f":{SECRET}", "")
    assert SECRET not in repr(spark(option)(named))
    # A login without a scheme is not lost.
    assert spark(option)(named).connection.url == f"stele://{named.removeprefix('stele://')}"  # pyright: ignore


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("stele://a:1,b:2", "stele://a:1,b:2"),
        ("https://alice:s3cret@[::1]:1/path?ca_file=x", "https://[::1]:1/path"),
        ("127.0.0.1:9009", "127.0.0.1:9009"),
        ("stele://alice:s3cret", "stele://…"),
        ("alice:s3cret", "…"),
        ("alice:1/s3cret", "…"),
    ],
)
def test_what_is_shown_of_a_url_is_its_address(url: str, shown: str) -> None:
    assert shown_url(url) == shown
