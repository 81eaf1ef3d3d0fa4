"""A compacted topic through a real Spark: holes between offsets are not a loss of records."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stele import Client
from stele.testing import run_broker

from ..test_compaction import CONFIGS, SETTINGS, TOPIC, produce_until_cleaned, records_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_a_batch_passes_holes_and_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with run_broker(tmp_path, environment=SETTINGS) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, configs=CONFIGS)
        produce_until_cleaned(broker, tmp_path, {}, random.Random(3), "zstd")
        assert broker.stop() == 0
    with run_broker(tmp_path, environment={"STELE_LOG_CLEANER_ENABLE": "false"}) as broker:
        expected = records_of(broker)
        assert expected[0][0] > 0, "a hole at the beginning"
        frame = (
            spark.read.format("stele")
            .option("url", broker.binary_url)
            .option("subscribe", TOPIC)
            .option("failOnDataLoss", "true")
            .option("minPartitions", "3")
            .load()
        )
        rows = frame.select("offset", "key", "value").orderBy("offset").collect()
    assert [(row.offset, bytes(row.key), row.value and bytes(row.value)) for row in rows] == expected


def test_a_table_has_the_newest_row_per_key_while_passes_run(spark: SparkSession, tmp_path: Path) -> None:
    with run_broker(tmp_path, environment=SETTINGS) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, configs=CONFIGS)
            client.create_topic("plain")
        reader = spark.read.format("stele").option("url", broker.binary_url).option("stele.table", "true")
        assert reader.option("subscribe", TOPIC).load().count() == 0
        for seed in range(2):
            produce_until_cleaned(broker, tmp_path, {}, random.Random(seed), "zstd")
            expected = table_of(records_of(broker))
            rows = reader.option("subscribe", TOPIC).load().select("key", "value").collect()
            assert len(rows) == len(expected)
            assert {bytes(row.key): bytes(row.value) for row in rows} == expected
        with pytest.raises(Exception, match="topic plain is not compacted"):
            reader.option("subscribe", "plain").load().count()
        assert broker.stop() == 0
