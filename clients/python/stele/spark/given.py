"""The options of a read or write, looked up by name. No Spark, no I/O.

Spark passes options as text in a case-insensitive dictionary. Unknown names are refused,
because a misspelt ``startingOffset`` would silently read other records.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, NoReturn, cast

from ..wire.notation import parse_boolean, parse_duration_ms, parse_whole
from .options import OptionError, PartitionOffsets, Use

_CONNECTION = (
    "kafka.bootstrap.servers",
    "url",
    "transport",
    "brokerTimeoutMs",
    "user",
    "passwordFile",
    "apiKeyFile",
)
SCHEMA_NAMES = (
    "stele.schema.subject",
    "stele.schema.version",
    "stele.schema.message",
    "stele.schema.key.subject",
    "stele.schema.key.version",
    "stele.schema.key.message",
    "stele.registry.url",
    "stele.registry.user",
    "stele.registry.passwordFile",
    "stele.registry.apiKeyFile",
)
_READ = (
    *_CONNECTION,
    *SCHEMA_NAMES,
    "stele.decode",
    "stele.decode.errors",
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
    *SCHEMA_NAMES,
    "stele.encode",
    "stele.encode.register",
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
# Spark shows options in plans, event logs and its UI.
_SECRETS = {
    "password": "passwordFile",
    "apikey": "apiKeyFile",
    "token": "apiKeyFile",
    "stele.registry.password": "stele.registry.passwordFile",
    "stele.registry.apikey": "stele.registry.apiKeyFile",
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


class Given:
    """The given options, looked up without regard to case."""

    def __init__(self, options: Mapping[str, str], use: Use | None) -> None:
        """Without a ``use``, the names are not checked. Raises OptionError for an unknown one."""
        self.use: Use = Use.BATCH_READ if use is None else use
        self._values = {name.lower(): str(value).strip() for name, value in options.items()}
        if use is None:
            return
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
