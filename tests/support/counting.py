"""A counter in a partition, built on conditional appends: each record has the count after it.

A writer that does not learn what became of its record sends the same record again, with the same end. If that is
refused, the record at that end tells whether the first time was a success. So each increment counts once, through
kills of the broker too, and without a producer id.
"""

from __future__ import annotations

from collections.abc import Callable

from stele import Client, Record, SteleClientError, UnexpectedEndError

from tests.support.waiting import Pauses

TOPIC = "counter"
_WAIT_MS = 1000


class CountingWriter:
    """Increments the counter at the broker whose URL ``url_of`` returns, which may be another one each time."""

    def __init__(self, number: int, url_of: Callable[[], str]) -> None:
        self._number = number
        self._url_of = url_of
        # What was read: the next offset, and the count before it.
        self._position = self._count = 0
        # The offset of each increment that was a success.
        self.offsets: list[int] = []
        self.refusals = 0
        # Successes of which it learned by reading.
        self.resolved = 0

    def run(self, increments: int) -> None:
        for number in range(increments):
            self.offsets.append(self._increment(number))

    def _increment(self, number: int) -> int:
        pauses = Pauses()
        # A record whose fate is not known, and the end that it expects.
        sent: tuple[bytes, int] | None = None
        while True:
            try:
                with Client(self._url_of()) as client:
                    while True:
                        sent = sent or (b"%d %d %d" % (self._number, number, self._count + 1), self._position)
                        value, end = sent
                        try:
                            receipt = client.produce(TOPIC, value, partition=0, expected_end=end)
                        except UnexpectedEndError as error:
                            self.refusals += 1
                            if self._read(client, error.log_end_offset, end) == value:
                                self.resolved += 1
                                return end
                            sent = None
                        else:
                            assert receipt.offset == end
                            self._position, self._count = end + 1, self._count + 1
                            return end
            except SteleClientError as error:
                if not error.retriable:
                    raise
                pauses.pause()

    def _read(self, client: Client, until: int, offset: int) -> bytes | None:
        """Read up to ``until``; return the value at ``offset``."""
        found: bytes | None = None
        while self._position < until:
            for record in client.fetch(TOPIC, 0, self._position, wait_ms=_WAIT_MS).records:
                self._position, self._count = record.offset + 1, count_of(record)
                if record.offset == offset:
                    found = record.value
        return found


def count_of(record: Record[bytes]) -> int:
    assert record.value is not None
    return int(record.value.split()[2])


def check_counter(client: Client, writers: list[CountingWriter], increments: int) -> None:
    """Check that each increment of each writer counted once, in the order of the log."""
    records: list[Record[bytes]] = []
    while page := client.fetch(TOPIC, 0, len(records)).records:
        records += page
    assert [record.offset for record in records] == list(range(len(writers) * increments))
    assert [count_of(record) for record in records] == list(range(1, len(records) + 1))
    for number, writer in enumerate(writers):
        mine = [b"%d %d %d" % (number, at, offset + 1) for at, offset in enumerate(writer.offsets)]
        assert [records[offset].value for offset in writer.offsets] == mine
        assert len(mine) == increments
