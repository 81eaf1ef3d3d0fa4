"""Which changes the writer of the connector takes for repetitions."""

from __future__ import annotations

import time

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.cdc.log_writer import LogWriter
from stele.cdc.records.events import EVENT_ID, Event, Position


def _writer(client: Client, *, version: int) -> LogWriter:
    return LogWriter(
        client,
        name="cdc/test",
        version=version,
        partitions=1,
        configs={},
        patience_s=10,
        pause=time.sleep,
        positions_topic="positions",
        was_transactional=None,
        transaction_timeout_s=None,
    )


@pytest.mark.parametrize("is_open", [False, True], ids=["alone", "beside an open transaction"])
def test_a_stored_change_is_not_stored_again(stele_broker: BrokerProcess, *, is_open: bool) -> None:
    position = Position(100, 50, 0)
    headers: list[tuple[str, bytes | None]] = [(EVENT_ID, str(position).encode())]
    with Client(stele_broker.binary_url) as client, Client(stele_broker.http_url) as other:
        client.create_topic("t", partitions=1)
        with other.transaction("other") as transaction:
            if is_open:
                transaction.produce("t", b"other")
            for version in (1, 2):
                writer = _writer(client, version=version)
                event = Event("c", b"1", b"row")
                writer.add("t", event, headers, timestamp_ms=0, position=position)
                writer.end_transaction(100, 0)
                writer.flush()
            assert (writer.written, writer.repeated) == (0, 1)
