"""A broker says which history of the metadata its logs are from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest

from app.storage.engine import SharedStorageCounts
from app.storage.shared.histories import Histories
from app.storage.shared.log import SharedLog
from app.storage.shared.meta import LogRow, Meta, PartitionId
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition

ROW = LogRow(
    log_id=1,
    partition_id=PartitionId(UUID(int=1), 0),
    log_start=0,
    next_offset=5,
    size_bytes=0,
    unmerged_bytes=0,
    merged_until=0,
    history=1,
)


class LaterMeta:
    """Metadata in which history 7 has begun since history 5 was noticed."""

    async def log_rows(self, log_ids: Sequence[int]) -> Mapping[int, LogRow]:
        return dict.fromkeys(log_ids, replace(ROW, history=7))


async def no_heartbeat() -> None:
    pass


async def test_a_later_history_than_the_one_that_was_noticed_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = SharedLog(TopicPartition("orders", 0), TopicConfig(), ROW)
    histories = Histories(
        meta=cast("Meta", LaterMeta()),
        logs={log.topic_partition: log},
        on_adopted=lambda _: None,
        heartbeat=no_heartbeat,
        counts=SharedStorageCounts(),
    )
    with caplog.at_level(logging.INFO):
        await histories.adopt(5)
    assert "taken over 1 logs from history 7 of the database" in caplog.text
