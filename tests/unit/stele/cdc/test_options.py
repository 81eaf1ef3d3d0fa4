"""Options that make no sense are refused with what to write; names of topics."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner
from stele.cdc.errors import CdcError
from stele.cdc.options import CdcOptionError, CdcOptions, TransactionMode
from stele.cdc.postgres.connection import describe_dsn
from stele.cdc.records.events import Position
from stele.cli import stele


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dsn": ""}, "--dsn postgresql://"),
        ({"tables": ()}, "--tables public.orders"),
        ({"slot": "Mine"}, "lower case"),
        ({"prefix": "a b"}, "prefix is 'a b'"),
        ({"partitions": 0}, "1 to 10000"),
        ({"accept_gap": "yes"}, "such as 0/3000060, or any"),
        ({"tables": ("public.a b", "public.a_b")}, "have the same topic, pg.public.a_b"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"dsn": "postgresql://h/d", "tables": ("t",), **options}
    with pytest.raises(CdcOptionError, match=said):
        CdcOptions(**given)


@pytest.mark.parametrize(
    ("accept_gap", "accepted"), [("", False), ("any", True), ("1/A0", True), ("1/a0", True), ("1/A1", False)]
)
def test_a_gap_is_accepted_by_its_first_lsn(accept_gap: str, accepted: bool) -> None:
    options = CdcOptions(dsn="postgresql://h/d", tables=("t",), accept_gap=accept_gap)
    assert options.accepts(0x1_0000_00A0) is accepted


def test_topics_are_named_after_tables_and_channels() -> None:
    options = CdcOptions(dsn="postgresql://h/d", tables=("t",))
    assert options.topic_of("public", "orders") == "pg.public.orders"
    assert options.topic_of("public", "größe 1") == "pg.public.gr__e_1"
    assert options.topic_of_channel("pgcdc:orders") == "pgcdc.orders"
    assert options.topic_of_channel("orders") == "pgcdc.orders"


def test_a_password_is_never_shown() -> None:
    assert describe_dsn("postgresql://me:secret@db:5433/shop") == "shop on db:5433"
    with pytest.raises(CdcError) as caught:
        describe_dsn("postgresql://me:secret@db:5433/shop?nonsense=secret")
    assert "secret" not in str(caught.value)
    # A slash that is not escaped ends the host.
    for dsn in ("postgresql://app:sec/ret@db/shop", "postgresql://app:12/34secret@db/shop"):
        with pytest.raises(CdcError, match="%2F") as caught:
            describe_dsn(dsn)
        assert "sec" not in str(caught.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:secret@db/shop",
        "postgresql://me@db/shop?password=secret",
        "host=db user=me password=secret",
        "postgresql://me@db/shop?sslpassword=secret",
    ],
)
def test_a_password_in_an_argument_is_refused(dsn: str) -> None:
    refused = CliRunner().invoke(stele, ["cdc", "--dsn", dsn, "--tables", "t"])
    assert refused.exit_code == 2
    assert "holds a password" in refused.output
    assert "secret" not in refused.output


def test_positions_are_ordered_as_the_stream_is_and_survive_text() -> None:
    positions = [Position(5, 1, 0), Position(5, 1, 1), Position(5, 0x10, 0), Position(0x10, 2, 0)]
    assert sorted(positions) == positions
    assert [Position.parse(str(position)) for position in positions] == positions


@pytest.mark.parametrize(
    ("mode", "is_new", "was", "broker", "expected"),
    [
        ("auto", True, None, "stele://h:9009", True),
        ("auto", True, None, "stele+tls://h:9009", True),
        ("auto", True, None, "http://h:8080", False),
        ("auto", False, None, "stele://h:9009", False),
        ("auto", False, True, "stele://h:9009", True),
        ("auto", False, False, "stele://h:9009", False),
        ("on", False, None, "stele://h:9009", True),
        ("off", True, None, "stele://h:9009", False),
    ],
)
def test_a_connector_writes_transactions_if_it_is_new_or_did_so_before(
    mode: TransactionMode, is_new: bool, was: bool | None, broker: str, expected: bool
) -> None:
    options = CdcOptions(dsn="postgresql://h/d", tables=("t",), transactions=mode, broker=broker)
    assert options.is_transactional(is_new=is_new, was_transactional=was) is expected


@pytest.mark.parametrize(
    "given", [{"storage": "memory"}, {"broker": "http://h:8080"}], ids=["memory", "http"]
)
def test_transactions_need_a_log_and_the_binary_protocol(given: dict[str, Any]) -> None:
    with pytest.raises(CdcOptionError, match="--transactions off"):
        CdcOptions(dsn="postgresql://h/d", tables=("t",), transactions="on", **given)
    options = CdcOptions(dsn="postgresql://h/d", tables=("t",), **given)
    assert not options.is_transactional(is_new=True, was_transactional=None)


@pytest.mark.parametrize(
    "dsn",
    [
        "app:secret@db/shop", "postgres//app:secret@db/shop", "postgresql:app:secret@db/shop", "secret",
        "postgresql://app:secret@db:port/shop", "postgresql://app:%zzsecret@db/shop", "host=db password=a secret",
        "postgresql://db/shop?secret", "postgresql://app:pass@secret@db/shop", "dbname=app:secret@db/shop",
    ],
)  # fmt: skip
def test_a_dsn_that_is_refused_is_not_repeated(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STELE_CDC_DSN", dsn)
    refused = CliRunner().invoke(stele, ["cdc", "--tables", "t"])
    assert refused.exit_code == 1
    assert "%2F" in refused.output
    assert "secret" not in refused.output


@pytest.mark.parametrize("broker", ["app:secret@host:9009", "stele://app:secret/x@host", "http://h?secret"])
def test_a_broker_that_is_refused_is_not_repeated(broker: str) -> None:
    with pytest.raises(CdcOptionError, match="broker: ") as refused:
        CdcOptions(dsn="postgresql://h/d", tables=("t",), broker=broker)
    assert "secret" not in str(refused.value)


def test_options_do_not_show_their_passwords() -> None:
    options = CdcOptions(
        dsn="postgresql://app:secret@h/d", tables=("t",), broker="stele://app:secret@host:9009"
    )
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    "given",
    [{"transactions": "off"}, {"storage": "memory"}, {"broker": "http://h:8080"}],
    ids=["without transactions", "memory", "http"],
)
@pytest.mark.parametrize("form", [{"compact": True}, {"value": "row"}], ids=["compact", "row"])
def test_a_record_per_row_needs_transactions(given: dict[str, Any], form: dict[str, Any]) -> None:
    with pytest.raises(CdcOptionError, match="--compact and --value row need transactions"):
        CdcOptions(dsn="postgresql://h/d", tables=("t",), **given, **form)
    options = CdcOptions(dsn="postgresql://h/d", tables=("t",), **form)
    assert options.is_transactional(is_new=False, was_transactional=False)
