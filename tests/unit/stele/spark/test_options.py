"""Options of the Spark source: what each means, and the words in which a wrong one is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from stele.spark import options as o
from stele.spark import parsing as p
from stele.spark.given import ALL_NAMES
from stele.spark.options import OptionError, Use

READ = {"url": "stele://broker:9009", "subscribe": "orders"}
WRITE = {"url": "stele://broker:9009", "topic": "orders"}


def read(use: Use = Use.BATCH_READ, **more: str) -> o.ReadOptions:
    return p.parse_read_options({**READ, **more}, use)


def write(use: Use = Use.BATCH_WRITE, **more: str) -> o.WriteOptions:
    return p.parse_write_options({**WRITE, **more}, use)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    batch, stream = read(), read(Use.STREAM_READ)
    assert (batch.start, batch.end) == (o.AtEnd(offset=o.EARLIEST), o.AtEnd(offset=o.LATEST))
    assert stream.start == o.AtEnd(offset=o.LATEST)
    assert batch.fail_on_data_loss
    assert not batch.include_headers


def test_option_names_and_values_are_accepted_in_any_case() -> None:
    parsed = read(STARTINGOFFSETS="Earliest", failondataloss="FALSE")
    assert parsed.start == o.AtEnd(offset=o.EARLIEST)
    assert not parsed.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"url": "stele://b:9009"}, "stele://b:9009"),
        ({"url": "http://b:8080"}, "http://b:8080"),
        ({"kafka.bootstrap.servers": "b:9009"}, "stele://b:9009"),
        ({"kafka.bootstrap.servers": "b"}, "stele://b:9009"),
        ({"kafka.bootstrap.servers": "b:1, c"}, "stele://b:1,c:9009"),
        ({"kafka.bootstrap.servers": "b", "transport": "http"}, "http://b:8080"),
        ({"kafka.bootstrap.servers": "[::1]:7", "transport": "TCP"}, "stele://[::1]:7"),
        ({"url": "http://b:8080", "kafka.bootstrap.servers": "http://b:8080"}, "http://b:8080"),
    ],
)
def test_the_broker_may_be_named_in_either_way(given: dict[str, str], url: str) -> None:
    assert p.parse_read_options({"subscribe": "t", **given}, Use.BATCH_READ).connection.url == url


def test_topics_are_selected_in_three_ways() -> None:
    assert read(subscribe="a, b,a").selection == o.Subscribe(topics=("a", "b"))
    given = {"url": "stele://b", "subscribePattern": "a.*"}
    assert p.parse_read_options(given, Use.BATCH_READ).selection == o.SubscribePattern(pattern="a.*")
    given = {"url": "stele://b", "assign": '{"b": [1, 0], "a": [2]}'}
    expected = o.Assign(partitions=(("a", 2), ("b", 0), ("b", 1)))
    assert p.parse_read_options(given, Use.BATCH_READ).selection == expected


def test_offsets_and_times_are_given_by_partition_or_for_all() -> None:
    assert read(startingOffsets='{"orders": {"0": 23, "1": -2}}').start == o.AtOffsets(
        offsets={"orders": {0: 23, 1: -2}}
    )
    assert read(endingOffsets='{"orders": {"0": -1}}').end == o.AtOffsets(offsets={"orders": {0: -1}})
    assert read(startingOffsetsByTimestamp='{"orders": {"0": 5}}').start == o.AtTimestamps(
        timestamps={"orders": {0: 5}}
    )
    assert read(endingTimestamp="7").end == o.AtTimestamp(timestamp_ms=7)


def test_the_more_general_time_goes_first_and_times_go_before_offsets() -> None:
    parsed = read(
        startingTimestamp="7", startingOffsetsByTimestamp='{"orders": {"0": 5}}', startingOffsets="earliest"
    )
    assert parsed.start == o.AtTimestamp(timestamp_ms=7)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15m", 900_000), ("30 s", 30_000), ("1h", 3_600_000), ("250", 250)]
)
def test_a_delay_is_a_number_with_a_unit(text: str, milliseconds: int) -> None:
    assert read(Use.STREAM_READ, maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_a_writer_is_exactly_once_by_default() -> None:
    parsed = write()
    assert (parsed.exactly_once, parsed.acks, parsed.compression) == (True, "all", "none")
    assert write(exactlyOnce="false", acks="1").exactly_once is False
    assert write(txnAppId="job", txnVersion="3").version == 3
    assert write(Use.STREAM_WRITE, txnAppId="job").application_id == "job"


def test_streams_are_transactional_unless_something_stands_against_it() -> None:
    parsed = write(Use.STREAM_WRITE)
    assert (parsed.transactional, parsed.transaction_timeout_ms) == (True, 900_000)
    for options in (
        {"transactional": "false"},
        {"exactlyOnce": "false"},
        {"acks": "1"},
        {"url": "http://b:1"},
    ):
        assert write(Use.STREAM_WRITE, **options).transactional is False, options
    assert write().transactional is False
    assert write(txnAppId="job", txnVersion="3").transactional is False
    assert write(txnAppId="job", txnVersion="3", transactional="true").transactional is True
    assert write(Use.STREAM_WRITE, transactionTimeout="30s").transaction_timeout_ms == 30_000


WRONG_READS = [
    (Use.BATCH_READ, {"subcribe": "t"}, "subcribe does not exist.*did you mean subscribe"),
    (Use.BATCH_READ, {"frobnicate": "1"}, "frobnicate does not exist.*there are kafka.bootstrap.servers"),
    (Use.BATCH_READ, {"kafka.group.id": "g"}, "kafka.group.id is one of Kafka's clients.*leave it out"),
    (Use.BATCH_READ, {"maxOffsetsPerTrigger": "5"}, "is for spark.readStream, not for spark.read; leave"),
    (Use.STREAM_READ, {"endingOffsets": "latest"}, "is for spark.read, not for spark.readStream"),
    (Use.BATCH_READ, {"topic": "t"}, "topic is for write and writeStream"),
    (Use.BATCH_READ, {"url": ""}, "url is '': it is empty"),
    (Use.BATCH_READ, {"url": "ftp://b"}, "write stele://HOST:9009"),
    (Use.BATCH_READ, {"url": "b:x"}, "no valid port"),
    (Use.BATCH_READ, {"transport": "udp"}, "write tcp or http"),
    (Use.BATCH_READ, {"transport": "http"}, "is the other one; write http://HOST:8080"),
    (Use.BATCH_READ, {"kafka.bootstrap.servers": "c:1"}, "both name the broker"),
    (Use.BATCH_READ, {"assign": '{"t": [0]}'}, "subscribe and assign exclude each other"),
    (Use.BATCH_READ, {"subscribe": "a,,b"}, "a name in it is empty"),
    (Use.BATCH_READ, {"startingOffsets": "latest"}, "is empty; write earliest or JSON"),
    (Use.BATCH_READ, {"startingOffsets": "soon"}, "write earliest, latest, or"),
    (Use.BATCH_READ, {"startingOffsets": "{"}, "it is not JSON"),
    (Use.BATCH_READ, {"startingOffsets": '{"orders": 5}'}, "'orders' has no object of partitions"),
    (Use.BATCH_READ, {"startingOffsets": '{"orders": {"x": 5}}'}, "'x' of 'orders' is no partition"),
    (Use.BATCH_READ, {"startingOffsets": '{"orders": {"0": -3}}'}, "orders-0 has -3"),
    (Use.BATCH_READ, {"startingOffsets": '{"orders": {"0": -1}}'}, "-1 \\(latest\\) cannot start a batch"),
    (Use.BATCH_READ, {"endingOffsets": "earliest"}, "is empty; write latest"),
    (Use.BATCH_READ, {"endingOffsets": '{"orders": {"0": -2}}'}, "-2 \\(earliest\\) cannot end"),
    (Use.BATCH_READ, {"startingTimestamp": "yesterday"}, "write a whole number"),
    (Use.BATCH_READ, {"failOnDataLoss": "no"}, "write true or false"),
    (Use.BATCH_READ, {"minPartitions": "0"}, "greater than 0"),
    (Use.BATCH_READ, {"fetchBytes": "1"}, "write a number from 65536 to"),
    (Use.BATCH_READ, {"startingOffsetsByTimestampStrategy": "guess"}, "write error or latest"),
    (Use.STREAM_READ, {"maxTriggerDelay": "soon"}, "write a time such as"),
    (
        Use.STREAM_READ,
        {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
        "greater than maxOffsetsPerTrigger",
    ),
]


@pytest.mark.parametrize(("use", "more", "words"), WRONG_READS)
def test_a_wrong_option_of_a_read_is_refused_with_advice(use: Use, more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read(use, **more)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "t"}, "option url is missing: name the broker"),
        ({"url": "stele://b"}, "say what to read"),
        ({"url": "stele://b", "subscribePattern": "("}, "no regular expression"),
        ({"url": "stele://b", "assign": '{"t": 0}'}, "has no list of partitions"),
        ({"url": "stele://b", "assign": '{"t": [-1]}'}, "is no partition"),
    ],
)
def test_missing_required_options_are_errors(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        p.parse_read_options(given, Use.BATCH_READ)


@pytest.mark.parametrize(
    ("use", "more", "words"),
    [
        (Use.BATCH_WRITE, {"acks": "0"}, "write all or 1"),
        (Use.BATCH_WRITE, {"compression": "rar"}, "write none, gzip"),
        (Use.BATCH_WRITE, {"url": "http://b", "compression": "zstd"}, "made by the broker; write stele://"),
        (Use.BATCH_WRITE, {"txnAppId": "a"}, "go together"),
        (Use.BATCH_WRITE, {"txnVersion": "1"}, "go together"),
        (Use.STREAM_WRITE, {"txnVersion": "1"}, "is for write, not for writeStream"),
        (Use.STREAM_WRITE, {"txnAppId": "a", "exactlyOnce": "false"}, "leave one of the two out"),
        (Use.STREAM_WRITE, {"txnAppId": "a" * 201}, "longer than 200"),
        (Use.STREAM_WRITE, {"transactional": "true", "acks": "1"}, "written with acks=all"),
        (
            Use.STREAM_WRITE,
            {"transactional": "true", "url": "http://b"},
            "over the binary protocol; write stele",
        ),
        (Use.STREAM_WRITE, {"transactional": "true", "exactlyOnce": "false"}, "does not use transactions"),
        (Use.BATCH_WRITE, {"transactional": "true"}, "also needs txnAppId and txnVersion"),
        (Use.BATCH_WRITE, {"transactionTimeout": "1m"}, "uses no transactions; leave it out"),
        (Use.STREAM_WRITE, {"subscribe": "a"}, "is for spark.read and spark.readStream"),
    ],
)
def test_a_wrong_option_of_a_write_is_refused_with_advice(use: Use, more: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        write(use, **more)


def test_what_spark_puts_among_the_options_is_let_through() -> None:
    assert write(Use.STREAM_WRITE, checkpointLocation="/x", path="/y", queryName="q").topic == "orders"


def test_every_option_is_in_the_documents_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "spark.md").read_text()
    rows = re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(ALL_NAMES)


def test_a_table_is_read_in_batches_over_the_binary_protocol() -> None:
    assert not read().is_table
    assert p.parse_read_options({**READ, "stele.table": "true"}, Use.BATCH_READ).is_table
    with pytest.raises(OptionError, match=r"stele\.table is for spark\.read, not for spark\.readStream"):
        p.parse_read_options({**READ, "stele.table": "true"}, Use.STREAM_READ)
    with pytest.raises(OptionError, match=r"stele\.table .*write stele://HOST:9009"):
        p.parse_read_options({"url": "http://b", "subscribe": "t", "stele.table": "true"}, Use.BATCH_READ)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "earliest"),
        ("endingOffsets", "latest"),
        ("startingTimestamp", "1"),
        ("endingTimestamp", "1"),
        ("minPartitions", "2"),
        ("maxRecordsPerPartition", "2"),
    ],
)
def test_a_table_has_no_offsets_and_no_splits(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=rf"option {name} .*stele\.table=true"):
        p.parse_read_options({**READ, "stele.table": "true", name: value}, Use.BATCH_READ)


@pytest.mark.parametrize("name", ["password", "apiKey", "token"])
def test_secrets_are_not_options_because_spark_shows_those(name: str) -> None:
    with pytest.raises(OptionError, match="Spark shows options") as refused:
        p.parse_read_options({**READ, name: "s3cret"}, Use.BATCH_READ)
    assert "s3cret" not in str(refused.value)


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(OptionError, match="passwordFile") as refused:
        read(url="stele://alice:s3cret@broker:9009")
    assert "s3cret" not in str(refused.value)


def test_a_login_is_a_user_and_files() -> None:
    connection = read(user="alice", passwordFile="/etc/stele/password").connection
    assert (connection.user, connection.password_file) == ("alice", "/etc/stele/password")
    assert write(apiKeyFile="/etc/stele/key").connection.api_key_file == "/etc/stele/key"
    with pytest.raises(OptionError, match="give one of the two"):
        read(user="alice", apiKeyFile="/etc/stele/key")


def test_columns_with_a_schema_have_the_subject_of_the_topic_or_the_one_that_is_named() -> None:
    assert read().schemas is None

    def decoding(**given: str) -> o.SchemaOptions:
        named = {f"stele.{name.replace('_', '.')}": value for name, value in given.items()}
        schemas = p.parse_read_options({**READ, **named}, Use.BATCH_READ).schemas
        assert schemas is not None
        return schemas

    given = decoding(decode="value, key", schema_version="3", schema_key_subject="ids")
    assert given.columns == (
        o.ColumnSchema(column="key", subject="ids"),
        o.ColumnSchema(column="value", subject="orders-value", version=3),
    )
    assert given.registry == o.RegistryOptions()
    login = {"registry_url": "http://r:8081", "registry_user": "u", "registry_passwordFile": "/p"}
    other = decoding(decode="value", decode_errors="null", **login)
    assert other.nulls
    assert other.registry == o.RegistryOptions(url="http://r:8081", user="u", password_file="/p")
    written = p.parse_write_options(
        {**WRITE, "stele.encode": "value", "stele.encode.register": "true"}, Use.BATCH_WRITE
    ).schemas
    assert written is not None
    assert written.registers
    assert p.parse_decoding({**READ, "unknown": "x"}) is None
    assert p.parse_decoding({**READ, "STELE.DECODE": "value", "minOffsetsPerTrigger": "1"}) is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stele.decode": "headers"}, "write value, key, or key,value"),
        ({"stele.decode": "value,value"}, "write value, key, or key,value"),
        ({"stele.decode": "value", "stele.decode.errors": "skip"}, "write fail or null"),
        ({"stele.schema.subject": "s"}, "it is for stele.decode=value"),
        ({"stele.decode.errors": "null"}, "it is for stele.decode=value"),
        ({"stele.decode": "value", "stele.schema.key.version": "1"}, "which stele.decode does not name"),
        ({"stele.decode": "value", "stele.schema.version": "0"}, "greater than 0"),
        ({"stele.decode": "value", "stele.encode": "value"}, "stele.encode is for write and writeStream"),
        ({"stele.decode": "value", "subscribe": "a,b"}, "option stele.schema.subject must name"),
        ({"stele.decode": "value", "stele.registry.user": "u"}, "has the login of the broker"),
        ({"stele.decode": "value", "stele.registry.url": "http://u:secret@r:8081"}, "holds a password"),
        ({"stele.decode": "value", "stele.registry.url": "stele://r:9009"}, "reached over HTTP"),
        ({"stele.decode": "value", "stele.registry.url": "r"}, "names no registry"),
        ({"stele.decode": "value", "stele.registry.password": "secret"}, "write stele.registry.passwordFile"),
    ],
)
def test_options_of_schemas_that_make_no_sense_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)) as refused:
        p.parse_read_options({**READ, **given}, Use.BATCH_READ)
    assert "secret" not in str(refused.value)


def test_a_column_of_topics_needs_a_named_subject() -> None:
    with pytest.raises(OptionError, match="topics are in a column"):
        p.parse_write_options({"url": "stele://b", "stele.encode": "value"}, Use.BATCH_WRITE)
    given = {"url": "stele://b", "stele.encode": "value", "stele.schema.subject": "s"}
    assert p.parse_write_options(given, Use.BATCH_WRITE).schemas is not None
