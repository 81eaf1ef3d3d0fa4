"""The calls about compaction: a compacted topic and its configurations, as the tools create, alter and describe them."""

from __future__ import annotations

from collections.abc import Iterator


def compaction_lines() -> Iterator[str | tuple[str, str]]:
    lags = "min.compaction.lag.ms=1000,max.compaction.lag.ms=3600000"
    due = "min.cleanable.dirty.ratio=0.01,delete.retention.ms=60000,segment.ms=600000"
    yield (
        "topics --create --topic state --config cleanup.policy=compact --config segment.ms=500"
        " --config min.cleanable.dirty.ratio=0.01 --config max.compaction.lag.ms=100"
    )
    yield "topics --describe --topic state"
    yield "configs --describe --topic state"
    yield f"configs --alter --topic state --add-config {lags}"
    yield f"configs --alter --topic state --add-config {due}"
    yield "configs --describe --topic state"
    yield "topics --describe --topic state"
    yield "configs --alter --topic state --add-config min.compaction.lag.ms=3600001"
    yield "configs --alter --topic state --add-config cleanup.policy=[delete,compact]"
    yield "configs --describe --topic state"
    yield "configs --alter --topic state --add-config cleanup.policy=[compact,shred]"
    yield "configs --alter --topic state --add-config cleanup.policy=[]"
    yield "configs --describe --topic state"
    yield "configs --alter --topic state --add-config cleanup.policy=compact"
    yield "configs --alter --topic state --add-config max.compaction.lag.ms=500"
    yield "configs --alter --topic state --delete-config min.compaction.lag.ms,max.compaction.lag.ms"
    yield "configs --describe --topic state"
    # A record without a key, and then the newest of each key.
    yield "console-producer --topic state", "no key\n"
    yield (
        "console-producer --topic state --reader-property parse.key=true --reader-property key.separator=:",
        "a:1\nb:1\na:2\n",
    )
    yield "console-consumer --topic state --partition 0 --offset earliest --max-messages 3 --timeout-ms 20000"
    yield "topics --create --topic state-two --config cleanup.policy=compact --config min.cleanable.dirty.ratio=1.5"
    yield (
        "topics --create --topic state-two --config cleanup.policy=compact --config min.compaction.lag.ms=2"
        " --config max.compaction.lag.ms=1"
    )
    yield "topics --delete --topic state"
