"""Kafka Streams counts exactly once while the directory of its broker is lost and restored, again and again.

``STELE_TEST_RESTORES`` says how often.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest
from stele import Client

from tests.conformance.clients import STREAMS
from tests.conformance.programs import COMPACTING, RecordProperty, home_of, jar_version, records_of, running
from tests.conformance.test_kafka_streams import INPUT, LONG_TRANSACTIONS, OUTPUT, PARTITIONS, WordCount
from tests.support.lost_directories import LostDirectories, file_bucket, lost_directories, now_ms

RESTORES = int(os.environ.get("STELE_TEST_RESTORES", "4"))


class RestoredWordCount(WordCount):
    """The program over a broker that is restored: from then on, the model is what the restored input has."""

    def __init__(self, home: Path, directory: Path, lost: LostDirectories) -> None:
        super().__init__(
            home, directory, lost.broker, guarantee="exactly_once_v2", properties=LONG_TRANSACTIONS
        )
        self._lost = lost
        # When lines were acknowledged, and how many there were by then.
        self._acks = [(0, 0)]

    def write(self, lines: int = 100) -> None:
        super().write(lines)
        self._acks.append((now_ms(), self._acks[-1][1] + lines))

    def restore(self, to_ms: int | None = None) -> None:
        cut_ms = self._lost.restore(to_ms)
        stored = self._stored()
        early = max(lines for ms, lines in self._acks if ms < cut_ms)
        assert len(stored) >= early, (
            f"{early} lines were acknowledged before the cut, and {len(stored)} are there"
        )
        self._acks = [(0, len(stored))]
        self.model = Counter(word for text in stored for word in text.split())

    def _stored(self) -> list[str]:
        with Client(self._lost.broker.binary_url) as client:
            return [
                (value or b"").decode()
                for partition in range(PARTITIONS)
                for _, value in records_of(
                    client, INPUT, partition, start=0, end=client.list_offset(INPUT, partition) or 0
                )
            ]

    def check(self) -> None:
        self.await_counts()
        # Without a cache each update is a record: a word that is counted twice, or not, leaves a repetition or a gap.
        assert self.counts() == {word: list(range(1, total + 1)) for word, total in self.model.items()}

    # ── what the program sees of it ──

    def runs_on(self) -> None:
        self.await_open_transaction()
        self._lost.lose()
        self.restore()

    def is_killed(self) -> None:
        self.await_open_transaction()
        self._lost.lose()
        self.program.kill()
        self.restore()
        self.program.start()

    def runs_on_after_commits(self) -> None:
        """Its store and its position are ahead by what it has committed since the cut."""
        moment_ms = self._commit_after_a_cut()
        self._lost.lose()
        self.restore(moment_ms)

    def is_closed_after_commits(self) -> None:
        """As before, but its store is on the disk, from which it is deleted as docs/backup.md says.

        Kafka Streams notices that it is ahead only if the broker answers the first fetch of a changelog in time.
        """
        moment_ms = self._commit_after_a_cut()
        self.program.end_input()
        self._lost.lose()
        self.restore(moment_ms)
        shutil.rmtree(self.state_dir)
        self.program.start()

    def _commit_after_a_cut(self) -> int:
        written_ms = now_ms()
        self.write()
        self._lost.await_cut_after(written_ms)
        moment_ms = now_ms()
        self.write()
        self.await_counts()
        return moment_ms


@pytest.mark.long
@pytest.mark.one_broker
@pytest.mark.program("kafka-streams")
def test_every_word_is_counted_exactly_once_over_restores(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    home = home_of(STREAMS)
    record_property("version", jar_version(home, "kafka-streams"))
    with lost_directories(tmp_path, file_bucket(tmp_path), COMPACTING) as lost:
        with Client(lost.broker.binary_url) as client:
            client.create_topic(INPUT, partitions=PARTITIONS)
            client.create_topic(OUTPUT, partitions=PARTITIONS)
        count = RestoredWordCount(home, tmp_path, lost)
        ways: tuple[Callable[[], None], ...] = (
            count.runs_on,
            count.is_killed,
            count.runs_on_after_commits,
            count.is_closed_after_commits,
        )
        with running(count.program):
            count.write()
            count.check()
            for way in islice(cycle(ways), RESTORES):
                way()
                count.write()
                count.check()
                print(f"restore {lost.restores}, the program {way.__name__}: {count.model.total()} words")
            count.program.end_input()
