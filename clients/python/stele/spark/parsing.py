"""Parser for the options of the data source, with the names of spark-sql-kafka. No Spark, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, cast

from ..calls import Isolation
from ..config import DEFAULT_TCP_PORT, Endpoint, has_password, shown_url
from .given import Given
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
    SchemaOptions,
    Selection,
    Subscribe,
    SubscribePattern,
    Use,
    WriteOptions,
)
from .schema_options import decoding_of, encoding_of

_DEFAULT_HTTP_PORT = 8080
_HAS_PORT = re.compile(r":\w*$")

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


def parse_read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Parse the options of a read. Raises ``OptionError`` for the first invalid one."""
    given = Given(options, use)
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
    selection = _selection(given)
    return ReadOptions(
        connection=connection,
        is_table=is_table,
        schemas=decoding_of(given, connection, selection),
        selection=selection,
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


def _check_table(given: Given, connection: Connection) -> None:
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
    given = Given(options, use)
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
        schemas=encoding_of(given, connection),
    )


def parse_decoding(options: Mapping[str, str]) -> SchemaOptions | None:
    """Parse what decodes columns, when it is not known yet whether a batch or a stream is read.

    Raises ``OptionError`` for an invalid option; names are checked later.
    """
    given = Given(options, None)
    if given.text("stele.decode") is None:
        return None
    return decoding_of(given, _connection(given), _selection(given))


def _is_transactional(given: Given, *, obstacles: Mapping[str, bool]) -> bool:
    """Return whether to write in transactions: by default micro-batches are, if nothing stands against it."""
    reasons = [reason for reason, stands in obstacles.items() if stands]
    if given.text("transactional") is None:
        return given.use is Use.STREAM_WRITE and not reasons
    wanted = given.boolean("transactional", default=False)
    if wanted and reasons:
        given.refuse("transactional", reasons[0])
    return wanted


def _connection(given: Given) -> Connection:
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


def _selection(given: Given) -> Selection:
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


def _assign(given: Given) -> Assign:
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


def _start(given: Given) -> Bound:
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


def _end(given: Given) -> Bound:
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


def _by_time(given: Given, everywhere: str, each: str) -> AtTimestamp | AtTimestamps | None:
    """Return the bound by time; the more general option wins, as in spark-sql-kafka."""
    timestamp_ms = given.whole(everywhere)
    timestamps = given.offsets(each, '{"orders": {"0": 1760000000000}} (ms since the epoch)', least=0)
    if timestamp_ms is not None:
        return AtTimestamp(timestamp_ms=timestamp_ms)
    return None if timestamps is None else AtTimestamps(timestamps=timestamps)


def _numbers(offsets: PartitionOffsets) -> Iterable[int]:
    return (number for partitions in offsets.values() for number in partitions.values())
