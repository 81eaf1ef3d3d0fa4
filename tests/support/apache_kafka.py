"""Apache Kafka and its tools as the other side of a test, which is skipped where they cannot run."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from load.apache_kafka import ApacheKafka, KafkaStartError, KafkaUnavailable

_START_ATTEMPTS = 3


@contextmanager
def kafka_or_skip() -> Generator[None]:
    """Skip the test if Java or Kafka's jars are missing; with ``CI`` set it fails instead."""
    try:
        yield
    except KafkaUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def start_kafka(directory: Path, properties: Mapping[str, str] | None = None) -> ApacheKafka:
    """Start a broker that keeps its files in ``directory``; the caller stops it.

    Raises:
        KafkaStartError: no attempt succeeded.
    """
    # The random id of its cluster may begin with "-", which its own tool takes for an option.
    for attempt in range(_START_ATTEMPTS):
        kafka = ApacheKafka(directory / str(attempt), properties=dict(properties or {}), heap="512m")
        try:
            with kafka_or_skip():
                kafka.start()
        except KafkaStartError:
            if attempt == _START_ATTEMPTS - 1:
                raise
        else:
            return kafka
    raise AssertionError("unreachable: the last attempt returns or raises")
