"""Read a whole partition as each protocol shows it, without records of transactions that were not committed."""

from __future__ import annotations

from stele import AsyncClient
from stele.testing import BrokerProcess
from stele.wire import record_batch as rb

from tests.support.kafka_peer import KafkaPeer
from tests.support.kafka_transactions import read, visible_headers

from .ledger import Content, Place


async def read_with_client(url: str, place: Place, start: int = 0) -> dict[int, Content]:
    """Read over HTTP or the binary protocol, as the URL says."""
    contents: dict[int, Content] = {}
    topic, partition = place
    async with AsyncClient(url) as client:
        while True:
            fetched = await client.fetch(topic, partition, start)
            for record in fetched.records:
                contents[record.offset] = Content(
                    record.value, record.key, tuple(record.headers), record.timestamp
                )
            if fetched.next_offset <= start:
                return contents
            start = fetched.next_offset


def read_over_kafka(broker: BrokerProcess, place: Place) -> dict[int, Content]:
    contents: dict[int, Content] = {}
    topic, partition = place
    offset = 0
    with KafkaPeer(broker) as peer:
        while True:
            fetched = read(peer, topic, offset, partition=partition)
            assert fetched.error_code == 0, fetched
            batches = bytes(fetched.records or b"")
            if not batches:
                return contents
            for header in visible_headers(fetched):
                rb.check_batch(batches, header.position)
                for record in rb.decode_records(batches, header):
                    contents[record.offset] = Content(
                        record.value, record.key, tuple(record.headers), record.timestamp
                    )
            *_, last = rb.iter_headers(batches)
            offset = last.next_offset
