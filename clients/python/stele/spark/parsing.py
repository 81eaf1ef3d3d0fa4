"""Parser for the options of the data source, with the names of spark-sql-kafka.

Spark passes options as text in a case-insensitive dictionary. Unknown names are refused,
because a misspelt ``startingOffset`` would silently read other records.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NoReturn, cast

from ..calls import Isolation
from ..config import DEFAULT_TCP_PORT, Endpoint, has_password, shown_url
from ..wire.notation import parse_boolean, parse_duration_ms, parse_whole
from .options import (
    BROKER_TIMEOUT_MS,
    EARLIEST,
    FETCH_BYTES,
    FETCH_BYTES_LEAST,
    FETCH_BYTES_MOST,
    LATEST,
    TRANSACTION_TIMEOUT_MS,
    Assign,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    Connection,
    OptionError,
    PartitionOffsets,
    ReadOptions,
    Selection,
    Subscribe,
    SubscribePattern,
    Use,
    WriteOptions,
)

_DEFAULT_HTTP_PORT = 8080
_HAS_PORT = re.compile(r":\w*$")

_CONNECTION = (
    "kafka.bootstrap.servers",
    "url",
    "transport",
    "brokerTimeoutMs",
    "user",
    "passwordFile",
    "apiKeyFile",
)
_READ = (
    *_CONNECTION,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "isolationLevel",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "fetchBytes",
)
_WRITE = (
    *_CONNECTION,
    "topic",
    "acks",
    "compression",
    "exactlyOnce",
    "txnAppId",
    "transactional",
    "transactionTimeout",
)
_NAMES: dict[Use, tuple[str, ...]] = {
    Use.BATCH_READ: (*_READ, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "stele.table"),
    Use.STREAM_READ: (*_READ, "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    Use.BATCH_WRITE: (*_WRITE, "txnVersion"),
    Use.STREAM_WRITE: _WRITE,
}
ALL_NAMES = tuple(dict.fromkeys(name for names in _NAMES.values() for name in names))
# Of a table, the rows are not those of a range of offsets, and each partition is one task.
_NOT_OF_TABLES = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "isolationLevel",
)
# Spark shows options in plans, event logs and its UI.
_SECRETS = {
    "password": "passwordFile",
    "apikey": "apiKeyFile",
    "token": "apiKeyFile",
}
# What Spark itself puts among the options of a source or a sink.
_SPARK_OWN = {"path", "checkpointlocation", "queryname", "outputmode"}
# The most common settings of Kafka clients, which have no counterpart here.
_KAFKA_HINTS = {
    "kafka.group.id": "a Stele source commits to no consumer group: leave it out",
    "kafka.isolation.level": "write isolationLevel",
    "kafka.acks": "write acks",
    "kafka.compression.type": "write compression",
    "kafka.security.protocol": "leave it out; for TLS, write the URL as stele+tls://HOST:9009?ca_file=FILE",
    "kafka.max.partition.fetch.bytes": "write fetchBytes",
    "kafka.fetch.max.bytes": "write fetchBytes",
}


def parse_read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Parse the options of a read. Raises ``OptionError`` for the first invalid one."""
    given = _Given(options, use)
    max_offsets, min_offsets = given.positive("maxOffsetsPerTrigger"), given.positive("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and max_offsets < min_offsets:
        given.refuse(
            "minOffsetsPerTrigger",
            f"it is greater than maxOffsetsPerTrigger ({max_offsets}); make it the smaller of the two",
        )
    # Only checked, because a read joins no group.
    given.text("groupIdPrefix")
    isolation = given.choice("isolationLevel", ("read_committed", "read_uncommitted"))
    connection = replace(_connection(given), isolation=cast("Isolation", isolation))
    is_table = given.boolean("stele.table", default=False)
    if is_table:
        _check_table(given, connection)
    return ReadOptions(
        connection=connection,
        is_table=is_table,
        selection=_selection(given),
        start=_start(given),
        end=_end(given),
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        include_headers=given.boolean("includeHeaders", default=False),
        start_beyond_last=cast(
            "Literal['error', 'latest']",
            given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")),
        ),
        min_partitions=given.positive("minPartitions"),
        max_records_per_partition=given.positive("maxRecordsPerPartition"),
        max_offsets_per_trigger=max_offsets,
        min_offsets_per_trigger=min_offsets,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", default=15 * 60_000),
        fetch_bytes=given.between("fetchBytes", FETCH_BYTES, FETCH_BYTES_LEAST, FETCH_BYTES_MOST),
    )


def _check_table(given: _Given, connection: Connection) -> None:
    for name in _NOT_OF_TABLES:
        if given.text(name) is not None:
            given.refuse(
                name,
                "with stele.table=true the newest record of every key is read, one task per partition; leave it out",
            )
    if connection.transport == "http":
        given.refuse(
            "stele.table", "tables are read over the binary protocol; write stele://HOST:9009 as the url"
        )


def parse_write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Parse the options of a write. Raises ``OptionError`` for the first invalid one."""
    given = _Given(options, use)
    exactly_once = given.boolean("exactlyOnce", default=True)
    application_id, version = given.text("txnAppId"), given.whole("txnVersion")
    if not exactly_once and application_id is not None:
        given.refuse("txnAppId", "exactlyOnce=false does not use it; leave one of the two out")
    if use is Use.BATCH_WRITE and (application_id is None) != (version is None):
        given.refuse(
            "txnAppId" if version is None else "txnVersion",
            "txnAppId and txnVersion go together: the application's name, and a number that grows from one "
            "run to the next and is the same when a run is repeated",
        )
    if application_id is not None and len(application_id) > 200:
        given.refuse("txnAppId", "it is longer than 200 characters; shorten it")
    connection = _connection(given)
    compression = given.choice("compression", ("none", "gzip", "snappy", "lz4", "zstd"))
    if compression != "none" and connection.transport == "http":
        given.refuse(
            "compression", "over HTTP batches are made by the broker; write stele://HOST:9009, or none"
        )
    acks = cast("Literal['all', '1']", given.choice("acks", ("all", "1")))
    transactional = _is_transactional(
        given,
        obstacles={
            "exactlyOnce=false does not use transactions": not exactly_once,
            "transactions are written over the binary protocol; write stele://HOST:9009 as the url": (
                connection.transport == "http"
            ),
            "transactions are written with acks=all": acks != "all",
        },
    )
    if transactional and use is Use.BATCH_WRITE and application_id is None:
        given.refuse("transactional", "a batch write also needs txnAppId and txnVersion")
    if not transactional and given.text("transactionTimeout") is not None:
        given.refuse("transactionTimeout", "the write uses no transactions; leave it out")
    return WriteOptions(
        connection=connection,
        topic=given.text("topic"),
        acks=acks,
        compression=compression,
        exactly_once=exactly_once,
        application_id=application_id,
        version=version,
        transactional=transactional,
        transaction_timeout_ms=given.duration_ms("transactionTimeout", default=TRANSACTION_TIMEOUT_MS),
    )


def _is_transactional(given: _Given, *, obstacles: Mapping[str, bool]) -> bool:
    """Return whether to write in transactions: by default micro-batches are, if nothing stands against it."""
    reasons = [reason for reason, stands in obstacles.items() if stands]
    if given.text("transactional") is None:
        return given.use is Use.STREAM_WRITE and not reasons
    wanted = given.boolean("transactional", default=False)
    if wanted and reasons:
        given.refuse("transactional", reasons[0])
    return wanted


class _Given:
    """The given options, looked up without regard to case."""

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self.use = use
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}
        proper = {name.lower(): name for name in _NAMES[use]}
        for name in self._values:
            if name not in proper and name not in _SPARK_OWN:
                self._refuse_name(name, proper)

    def _refuse_name(self, name: str, proper: Mapping[str, str]) -> NoReturn:
        elsewhere = next((n for n in ALL_NAMES if n.lower() == name), None)
        if elsewhere is not None:
            where = " and ".join(f"{use.value}" for use, names in _NAMES.items() if elsewhere in names)
            raise OptionError(f"option {elsewhere} is for {where}, not for {self.use.value}; leave it out")
        if file_option := _SECRETS.get(name):
            raise OptionError(
                f"option {name} does not exist, because Spark shows options; write {file_option} with the path of a file "
                "that each executor has, or set STELE_PASSWORD or STELE_API_KEY for driver and executors"
            )
        if hint := _KAFKA_HINTS.get(name):
            raise OptionError(f"option {name} is one of Kafka's clients, and this is not one; {hint}")
        close = difflib.get_close_matches(name, proper, n=1, cutoff=0.75)
        advice = f"did you mean {proper[close[0]]}?" if close else f"there are {', '.join(proper.values())}"
        raise OptionError(f"option {name} does not exist for {self.use.value}; {advice}")

    def refuse(self, name: str, why: str) -> NoReturn:
        raise OptionError(f"option {name} is {self._values.get(name.lower(), 'missing')!r}: {why}")

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value == "":
            self.refuse(name, "it is empty; give it a value, or leave it out")
        return value

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        chosen = parse_boolean(value)
        if chosen is None:
            self.refuse(name, "write true or false")
        return chosen

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of ``choices``; the first is the default."""
        value = (self.text(name) or choices[0]).lower()
        if value not in choices:
            self.refuse(name, f"write {', '.join(choices[:-1])} or {choices[-1]}")
        return value

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        number = parse_whole(value)
        if number is None:
            self.refuse(name, "write a whole number, 0 or more")
        return number

    def positive(self, name: str) -> int | None:
        number = self.whole(name)
        if number == 0:
            self.refuse(name, "write a whole number greater than 0")
        return number

    def between(self, name: str, default: int, least: int, most: int) -> int:
        number = self.whole(name)
        if number is not None and not least <= number <= most:
            self.refuse(name, f"write a number from {least} to {most}")
        return default if number is None else number

    def duration_ms(self, name: str, *, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        # As in Spark's own options, a number without a unit is milliseconds.
        duration_ms = parse_whole(value)
        if duration_ms is None:
            duration_ms = parse_duration_ms(value)
        if duration_ms is None:
            self.refuse(name, "write a time such as 500ms, 30s, 15m or 1h")
        return duration_ms

    def json_object(self, name: str, example: str) -> dict[str, Any] | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            parsed = json.loads(value)
        except ValueError as error:
            self.refuse(name, f"it is not JSON ({error}); write {example}")
        if not isinstance(parsed, dict) or not parsed:
            self.refuse(name, f"write a JSON object such as {example}")
        return cast("dict[str, Any]", parsed)

    def offsets(self, name: str, example: str, *, least: int) -> PartitionOffsets | None:
        """Parse numbers per partition, such as ``{"topic": {"0": 23}}``."""
        parsed = self.json_object(name, example)
        if parsed is None:
            return None
        by_topic: dict[str, dict[int, int]] = {}
        for topic, partitions in parsed.items():
            if not isinstance(partitions, dict) or not partitions:
                self.refuse(name, f"{topic!r} has no object of partitions; write {example}")
            by_topic[topic] = {}
            for partition, number in cast("dict[str, Any]", partitions).items():
                number_of_partition = parse_whole(partition)
                if number_of_partition is None:
                    self.refuse(name, f"{partition!r} of {topic!r} is no partition; write {example}")
                if not isinstance(number, int) or isinstance(number, bool) or number < least:
                    self.refuse(name, f"{topic}-{partition} has {number!r}; write {example}")
                by_topic[topic][number_of_partition] = number
        return by_topic


def _connection(given: _Given) -> Connection:
    servers, url = given.text("kafka.bootstrap.servers"), given.text("url")
    if servers is not None and url is not None and servers != url:
        raise OptionError(
            "options url and kafka.bootstrap.servers differ, and both name the broker; give one"
        )
    name, text = ("kafka.bootstrap.servers", servers) if url is None else ("url", url)
    if text is None:
        raise OptionError(
            "option url is missing: name the broker, as stele://HOST:9009 (its binary listener) or http://HOST:8080"
        )
    transport = given.text("transport")
    transport = transport and given.choice("transport", ("tcp", "http"))
    text = text if "://" in text else _with_scheme(text, transport)
    try:
        endpoint = Endpoint.parse(text)
    except ValueError as error:
        # Without the value, which may hold a password.
        raise OptionError(f"option {name} names no broker: {error}") from None
    if has_password(text):
        raise OptionError(
            f"option {name} holds a password, and Spark shows options; write stele://USER@HOST:9009 and passwordFile, or set "
            "STELE_PASSWORD for driver and executors"
        )
    if transport is not None and endpoint.transport != transport:
        scheme = "stele://HOST:9009" if transport == "tcp" else "http://HOST:8080"
        given.refuse(
            "transport", f"{shown_url(text)} is the other one; write {scheme}, or leave transport out"
        )
    timeout_ms = given.between("brokerTimeoutMs", BROKER_TIMEOUT_MS, 1, 24 * 3_600_000)
    user, password_file = given.text("user"), given.text("passwordFile")
    api_key_file = given.text("apiKeyFile")
    if api_key_file is not None and (user is not None or password_file is not None):
        given.refuse("apiKeyFile", "user and passwordFile are another login; give one of the two")
    return Connection(
        url=text,
        broker_timeout_ms=timeout_ms,
        user=user,
        password_file=password_file,
        api_key_file=api_key_file,
    )


def _with_scheme(text: str, transport: str | None) -> str:
    """Return a URL for ``HOST:PORT,HOST:PORT``, as Kafka programs have it."""
    login, at, hosts = text.rpartition("@")
    scheme, port = ("http", _DEFAULT_HTTP_PORT) if transport == "http" else ("stele", DEFAULT_TCP_PORT)
    named = (host.strip() for host in hosts.split(","))
    return f"{scheme}://{login}{at}{','.join(h if _HAS_PORT.search(h) else f'{h}:{port}' for h in named)}"


def _selection(given: _Given) -> Selection:
    names = ("subscribe", "subscribePattern", "assign")
    present = [name for name in names if given.text(name) is not None]
    if not present:
        raise OptionError("say what to read with one of the options subscribe, subscribePattern and assign")
    if len(present) > 1:
        raise OptionError(f"options {' and '.join(present)} exclude each other; give one of them")
    if topics := given.text("subscribe"):
        listed = tuple(dict.fromkeys(topic.strip() for topic in topics.split(",")))
        if "" in listed:
            given.refuse("subscribe", "a name in it is empty; write topics with commas between them")
        return Subscribe(topics=listed)
    if pattern := given.text("subscribePattern"):
        try:
            re.compile(pattern)
        except re.error as error:
            given.refuse("subscribePattern", f"it is no regular expression: {error}")
        return SubscribePattern(pattern=pattern)
    return _assign(given)


def _assign(given: _Given) -> Assign:
    example = '{"orders": [0, 1]}'
    parsed = given.json_object("assign", example)
    assert parsed is not None
    partitions_of_topics: list[tuple[str, int]] = []
    for topic, partitions in parsed.items():
        listed = cast("list[object]", partitions) if isinstance(partitions, list) else []
        if not listed:
            given.refuse("assign", f"{topic!r} has no list of partitions; write {example}")
        for partition in listed:
            if not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
                given.refuse("assign", f"{partition!r} of {topic!r} is no partition; write {example}")
            partitions_of_topics.append((topic, partition))
    return Assign(partitions=tuple(sorted(set(partitions_of_topics))))


def _start(given: _Given) -> Bound:
    example = '{"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
    at = _by_time(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if at is not None:
        return at
    text = given.text("startingOffsets")
    if text is None:
        return AtEnd(offset=LATEST if given.use.is_stream else EARLIEST)
    if text.lower() == "earliest":
        return AtEnd(offset=EARLIEST)
    if text.lower() == "latest":
        if not given.use.is_stream:
            given.refuse(
                "startingOffsets", "a batch from the latest offset on is empty; write earliest or JSON"
            )
        return AtEnd(offset=LATEST)
    if not text.startswith("{"):
        given.refuse("startingOffsets", f"write earliest, latest, or {example}")
    offsets = given.offsets("startingOffsets", example, least=EARLIEST)
    assert offsets is not None
    if not given.use.is_stream and LATEST in _numbers(offsets):
        given.refuse("startingOffsets", "-1 (latest) cannot start a batch; write an offset, or -2 (earliest)")
    return AtOffsets(offsets=offsets)


def _end(given: _Given) -> Bound:
    if given.use.is_stream:
        return AtEnd(offset=LATEST)
    example = '{"orders": {"0": 50, "1": -1}} (-1 latest)'
    at = _by_time(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if at is not None:
        return at
    text = given.text("endingOffsets")
    if text is None or text.lower() == "latest":
        return AtEnd(offset=LATEST)
    if text.lower() == "earliest":
        given.refuse(
            "endingOffsets", "a batch that ends at the earliest offset is empty; write latest or JSON"
        )
    if not text.startswith("{"):
        given.refuse("endingOffsets", f"write latest, or {example}")
    offsets = given.offsets("endingOffsets", example, least=EARLIEST)
    assert offsets is not None
    if EARLIEST in _numbers(offsets):
        given.refuse("endingOffsets", "-2 (earliest) cannot end a batch; write an offset, or -1 (latest)")
    return AtOffsets(offsets=offsets)


def _by_time(given: _Given, everywhere: str, each: str) -> AtTimestamp | AtTimestamps | None:
    """Return the bound by time; the more general option wins, as in spark-sql-kafka."""
    timestamp_ms = given.whole(everywhere)
    timestamps = given.offsets(each, '{"orders": {"0": 1760000000000}} (ms since the epoch)', least=0)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms=timestamp_ms)
    return None if timestamps is None else AtTimestamps(timestamps=timestamps)


def _numbers(offsets: PartitionOffsets) -> Iterable[int]:
    return (number for partitions in offsets.values() for number in partitions.values())
