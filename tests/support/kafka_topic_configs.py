"""What Apache Kafka 4.3.1 takes for each topic configuration, asked of it; and where Stele differs, and why.

``tests/integration/test_kafka_configs.py`` asks both again.
"""

from __future__ import annotations

from typing import NamedTuple


class KafkaConfig(NamedTuple):
    """One topic configuration: its type (Kafka's number), its default, the first broker-wide name that shows
    as its synonym when nothing is set, values that it takes, and values that it refuses with 40."""

    type: int
    default: str
    synonym: str | None
    takes: tuple[str, ...]
    refuses: tuple[str, ...]


TOPIC_CONFIGS: dict[str, KafkaConfig] = {
    "cleanup.policy": KafkaConfig(
        7,
        "delete",
        "log.cleanup.policy",
        ("", "delete", "compact", "delete,compact", "delete,delete", " delete , compact "),
        ("*", "1:2,3:4", "1:2,1:2", "none", "x", "0:1", "a:b", ","),
    ),
    "compression.gzip.level": KafkaConfig(
        3,
        "-1",
        "compression.gzip.level",
        ("-1", "1", "2", "9", " 5 ", "+5"),
        (
            "-2",
            "0",
            "10",
            "17",
            "18",
            "22",
            "23",
            "1048575",
            "1048576",
            "2147483647",
            "2147483648",
            "x",
            "",
            "5.0",
        ),
    ),
    "compression.lz4.level": KafkaConfig(
        3,
        "9",
        "compression.lz4.level",
        ("1", "2", "9", "10", "17", " 5 ", "+5"),
        ("-2", "-1", "0", "18", "22", "23", "1048575", "1048576", "2147483647", "2147483648", "x", "", "5.0"),
    ),
    "compression.type": KafkaConfig(
        2,
        "producer",
        "compression.type",
        ("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"),
        ("none", "GZIP", "CreateTime", "LogAppendTime", "createtime", "", "x"),
    ),
    "compression.zstd.level": KafkaConfig(
        3,
        "3",
        "compression.zstd.level",
        ("-2", "-1", "0", "1", "2", "9", "10", "17", "18", "22", " 5 ", "+5"),
        ("23", "1048575", "1048576", "2147483647", "2147483648", "x", "", "5.0"),
    ),
    "delete.retention.ms": KafkaConfig(
        5,
        "86400000",
        "log.cleaner.delete.retention.ms",
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "file.delete.delay.ms": KafkaConfig(
        5,
        "60000",
        "log.segment.delete.delay.ms",
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "flush.messages": KafkaConfig(
        5,
        "9223372036854775807",
        "log.flush.interval.messages",
        ("1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "0", "9223372036854775808", "x", "1.5"),
    ),
    "flush.ms": KafkaConfig(
        5,
        "9223372036854775807",
        None,
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "follower.replication.throttled.replicas": KafkaConfig(
        7,
        "",
        None,
        ("", "*", "1:2,3:4", "1:2,1:2", "0:1", ","),
        ("delete", "compact", "delete,compact", "delete,delete", " delete , compact ", "none", "x", "a:b"),
    ),
    "index.interval.bytes": KafkaConfig(
        3,
        "4096",
        "log.index.interval.bytes",
        ("0", "1", "2", "9", "10", "17", "18", "22", "23", "1048575", "1048576", "2147483647", " 5 ", "+5"),
        ("-2", "-1", "2147483648", "x", "", "5.0"),
    ),
    "leader.replication.throttled.replicas": KafkaConfig(
        7,
        "",
        None,
        ("", "*", "1:2,3:4", "1:2,1:2", "0:1", ","),
        ("delete", "compact", "delete,compact", "delete,delete", " delete , compact ", "none", "x", "a:b"),
    ),
    "local.retention.bytes": KafkaConfig(
        5,
        "-2",
        "log.local.retention.bytes",
        ("-2", "-1", "0", "1", "3600001", "9223372036854775807"),
        ("-3", "9223372036854775808", "x", "1.5"),
    ),
    "local.retention.ms": KafkaConfig(
        5,
        "-2",
        "log.local.retention.ms",
        ("-2", "-1", "0", "1", "3600001", "9223372036854775807"),
        ("-3", "9223372036854775808", "x", "1.5"),
    ),
    "max.compaction.lag.ms": KafkaConfig(
        5,
        "9223372036854775807",
        "log.cleaner.max.compaction.lag.ms",
        ("1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "0", "9223372036854775808", "x", "1.5"),
    ),
    "max.message.bytes": KafkaConfig(
        3,
        "1048588",
        "message.max.bytes",
        ("0", "1", "2", "9", "10", "17", "18", "22", "23", "1048575", "1048576", "2147483647", " 5 ", "+5"),
        ("-2", "-1", "2147483648", "x", "", "5.0"),
    ),
    "message.timestamp.after.max.ms": KafkaConfig(
        5,
        "3600000",
        "log.message.timestamp.after.max.ms",
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "message.timestamp.before.max.ms": KafkaConfig(
        5,
        "9223372036854775807",
        "log.message.timestamp.before.max.ms",
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "message.timestamp.type": KafkaConfig(
        2,
        "CreateTime",
        "log.message.timestamp.type",
        ("CreateTime", "LogAppendTime"),
        ("producer", "uncompressed", "none", "zstd", "lz4", "snappy", "gzip", "GZIP", "createtime", "", "x"),
    ),
    "min.cleanable.dirty.ratio": KafkaConfig(
        6,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        ("0", "0.0", "0.5", "1", "1.0", "5e-1"),
        ("-0.1", "1.1", "x", "Infinity"),
    ),
    "min.compaction.lag.ms": KafkaConfig(
        5,
        "0",
        "log.cleaner.min.compaction.lag.ms",
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "min.insync.replicas": KafkaConfig(
        3,
        "1",
        "min.insync.replicas",
        ("1", "2", "9", "10", "17", "18", "22", "23", "1048575", "1048576", "2147483647", " 5 ", "+5"),
        ("-2", "-1", "0", "2147483648", "x", "", "5.0"),
    ),
    "preallocate": KafkaConfig(
        1, "false", "log.preallocate", ("true", "false", "TRUE", " true "), ("yes", "")
    ),
    "remote.log.copy.disable": KafkaConfig(
        1, "false", None, ("true", "false", "TRUE", " true "), ("yes", "")
    ),
    "remote.log.delete.on.disable": KafkaConfig(
        1, "false", None, ("true", "false", "TRUE", " true "), ("yes", "")
    ),
    "remote.storage.enable": KafkaConfig(1, "false", None, ("false",), ("true", "TRUE", "yes", "", " true ")),
    "retention.bytes": KafkaConfig(
        5,
        "-1",
        "log.retention.bytes",
        ("-3", "-2", "-1", "0", "1", "3600001", "9223372036854775807"),
        ("9223372036854775808", "x", "1.5"),
    ),
    "retention.ms": KafkaConfig(
        5,
        "604800000",
        None,
        ("-1", "0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "9223372036854775808", "x", "1.5"),
    ),
    "segment.bytes": KafkaConfig(
        3,
        "1073741824",
        "log.segment.bytes",
        ("1048576", "2147483647"),
        (
            "-2",
            "-1",
            "0",
            "1",
            "2",
            "9",
            "10",
            "17",
            "18",
            "22",
            "23",
            "1048575",
            "2147483648",
            "x",
            "",
            " 5 ",
            "5.0",
            "+5",
        ),
    ),
    "segment.index.bytes": KafkaConfig(
        3,
        "10485760",
        "log.index.size.max.bytes",
        ("9", "10", "17", "18", "22", "23", "1048575", "1048576", "2147483647", " 5 ", "+5"),
        ("-2", "-1", "0", "1", "2", "2147483648", "x", "", "5.0"),
    ),
    "segment.jitter.ms": KafkaConfig(
        5,
        "0",
        None,
        ("0", "1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "9223372036854775808", "x", "1.5"),
    ),
    "segment.ms": KafkaConfig(
        5,
        "604800000",
        None,
        ("1", "3600001", "9223372036854775807"),
        ("-3", "-2", "-1", "0", "9223372036854775808", "x", "1.5"),
    ),
    "unclean.leader.election.enable": KafkaConfig(
        1, "false", "unclean.leader.election.enable", ("true", "false", "TRUE", " true "), ("yes", "")
    ),
}

# (name, value) → why Stele answers otherwise.
DIFFERENCES = {
    ("segment.bytes", "1048575"): "small segments are useful in tests",
    ("flush.ms", "-1"): "the broker's own interval, in releases that had no other name for it",
}


# How a value may be written: configurations of each type, what Kafka takes, and what it refuses.
_NUMBERS = (
    ("\t5\n", "5\0", "0" * 25 + "5", "\u0663"),
    ("1_000", "\xa05", "0_5", "\u20285", "++5", "- 5", "1e3", "0x10", "\u22125", ""),
)
SPELLINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "retention.ms": _NUMBERS,
    "retention.bytes": _NUMBERS,
    "index.interval.bytes": _NUMBERS,
    "preallocate": (("TRUE", " true ", "false"), ("", "yes", "1", "t", "\xa0true")),
    "min.cleanable.dirty.ratio": (
        ("0.5f", "0.5D", "1e-1", ".5", "1.", " 0.5 ", "-0.0"),
        ("", "0_5", "\xa00.5", "0,5", "1.0001", "Infinity", "inf"),
    ),
    "cleanup.policy": (("delete , compact", ""), ("\xa0", ",", "delete,", "delete,,compact", "Delete")),
    "compression.type": ((" gzip ",), ("GZIP", "\xa0gzip", "gzip,")),
    "leader.replication.throttled.replicas": (("1:2,", "99999999999:1"), ("\xa0", "*,1:2", "1:-2")),
}
