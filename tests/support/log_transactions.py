"""A random history of one partition with the transactions of several producers.

Each life is a start, a random schedule of batches, markers, reads and deletions, and an end: a
close, a crash, or a power cut in the middle of any call to the file system. A list of the batches
is the model: the last stable offset, the aborted transactions of every range that is read, the
producer state and the index files must be what the list says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch
from stele.wire.isolation_level import IsolationLevel

from app.broker.producing.producer_state import ProducerStates
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import AbortedTransaction, PartitionFetch
from app.storage.segments.transaction_index import AbortedEntry, TransactionIndex
from app.storage.topic_config import TopicConfig

from .batches import ORDERS, batch_of, spec_of
from .engines import DATA, segment_path
from .simulated_files import SimulatedFiles
from .simulated_time import SimulatedClock

LIVES = 4
_PRODUCERS = (11, 12, 13)
_OPTIONS = EngineOptions(flush_interval_ms=20, checkpoint_interval_ms=50, retention_interval_ms=10**9)
_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


class StillClock:
    """A clock that stands still: rebuilt producer states have the times of the running ones."""

    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 1_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch of the model, with its marker."""

    header: rb.BatchHeader
    marker: EndTransactionMarker | None
    # Someone waits for its sync.
    is_awaited: bool = False


class TransactionModel:
    """The batches of the log; everything is worked out from all of them each time."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.start = 0
        self.recovery_point = 0

    @property
    def high_watermark(self) -> int:
        waiting = (stored.header.base_offset for stored in self.batches if stored.is_awaited)
        return min((offset for offset in waiting if offset >= self.recovery_point), default=self.end)

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else 0

    def open_and_aborted(self) -> tuple[dict[int, int], list[AbortedEntry]]:
        """Return the first offsets of open transactions by producer, and those that were aborted."""
        opened: dict[int, int] = {}
        aborted: list[AbortedEntry] = []
        for stored in self.batches:
            header = stored.header
            if stored.marker is not None:
                first = opened.pop(header.producer_id, None)
                if first is not None and stored.marker.type is MarkerType.ABORT:
                    stable = min(opened.values(), default=header.next_offset)
                    aborted.append(AbortedEntry(header.producer_id, first, header.base_offset, stable))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return opened, aborted

    @property
    def last_stable_offset(self) -> int:
        opened, _ = self.open_and_aborted()
        return min(max(self.start, min(opened.values(), default=self.end)), self.high_watermark)

    def left_of_open(self) -> dict[int, int]:
        """Return the first offset of what is left of each open transaction, by producer id."""
        opened, _ = self.open_and_aborted()
        left: dict[int, int] = {}
        for header in (stored.header for stored in self.batches):
            begun = opened.get(header.producer_id)
            if begun is not None and not header.is_control and header.base_offset >= max(begun, self.start):
                left.setdefault(header.producer_id, header.base_offset)
        return left

    def aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        _, aborted = self.open_and_aborted()
        overlapping = [entry for entry in aborted if entry.last_offset >= start and entry.first_offset < end]
        return [AbortedTransaction(*entry[:3]) for entry in sorted(overlapping, key=lambda entry: entry[1])]

    def producer_states(self) -> ProducerStates:
        states = ProducerStates(StillClock())
        for stored in self.batches:
            states.apply(stored.header, stored.marker)
        return states


class LogTransactionHistory:
    """One random history; ``run`` raises an ``AssertionError`` if the log differs from the model."""

    def __init__(self, seed: int, files: SimulatedFiles | None = None) -> None:
        self.reads = 0
        self.aborted_seen = 0
        self.ends = 0
        self._random = Random(seed)
        self._files = files or SimulatedFiles()
        self._files.is_cold = lambda: self._random.random() < 0.1
        self._clock = SimulatedClock()
        self._survivor: SimulatedFiles | None = None
        self._model = TransactionModel()
        self._states = ProducerStates(StillClock())
        self._synced_end = 0
        # A snapshot of producer states is not synced, so without the deleted segments the power cut may lose them.
        self._deletes = self._random.random() < 0.4
        self._config = TopicConfig(
            segment_bytes=self._random.choice((300, 700, 2000, 1 << 20)),
            index_interval_bytes=self._random.choice((0, 200, 4096)),
            flush_messages=self._random.choice((1, 5, 1 << 40)),
        )

    async def run(self) -> None:
        for _ in range(LIVES):
            await self._live()
        self._survivor = None
        self._files.alarm(1 << 60, self._end)
        engine = await self._open()
        await self._check(engine)
        await engine.close()
        self._check_files()

    # ── a life ──

    async def _live(self) -> None:
        random, files = self._random, self._files
        self._survivor = None
        files.alarm(random.choice((random.randint(1, 60), random.randint(1, 400), 1 << 60)), self._end)
        engine = await self._open()
        if self._survivor is None:
            await self._check(engine)
            for _ in range(random.randint(1, 50)):
                if self._survivor is not None:
                    break
                await self._step(engine)
        if self._survivor is None and random.random() < 0.3:
            self._end()
        await engine.close()
        if self._survivor is not None:
            self._files = self._survivor
            self._files.is_cold = lambda: self._random.random() < 0.1
            self.ends += 1
        else:
            files.alarm(1 << 60, self._end)
            self._synced_end = self._model.end
            self._check_files()

    def _end(self) -> None:
        if self._survivor is None:
            is_power_cut = not self._deletes and self._random.random() < 0.7
            self._survivor = (
                self._files.power_cut(self._random) if is_power_cut else self._files.crash(self._random)
            )

    async def _open(self) -> EmbeddedEngine:
        self._files.now_ms = self._clock.now_ms
        engine = EmbeddedEngine(self._files, DATA, clock=self._clock, options=_OPTIONS)
        await engine.open()
        self._states = ProducerStates(StillClock())
        spec = spec_of(
            ORDERS, clock=self._clock, config=self._config, topic_id=UUID(int=7), producer_state=self._states
        )
        await engine.create([spec])
        await engine.start()
        if self._survivor is None:
            state = engine.state(ORDERS)
            assert state.log_end_offset >= self._synced_end, "synced batches are lost"
            model = self._model
            model.batches = [
                stored for stored in model.batches if stored.header.next_offset <= state.log_end_offset
            ]
            model.start = state.log_start_offset
            assert state.high_watermark == state.log_end_offset, "something that was recovered is hidden"
            assert model.end == state.log_end_offset
        return engine

    # ── what must be true ──

    async def _check(self, engine: EmbeddedEngine) -> None:
        model = self._model
        state = engine.state(ORDERS)
        model.recovery_point = state.recovery_point
        assert state.high_watermark == model.high_watermark
        expected = model.producer_states()
        if not self._deletes:
            assert state.last_stable_offset == model.last_stable_offset
            assert self._states.snapshot() == expected.snapshot()
        else:
            # A start after a deletion may know nothing of the deleted batches. Then a transaction begins with what
            # is left of it, and one of which nothing is left is not open.
            opened_at, left = model.open_and_aborted()[0], model.left_of_open()
            opened = {one.producer_id: one.first_offset for one in self._states.open_transactions(ORDERS)}
            assert left.keys() <= opened.keys() <= opened_at.keys()
            assert state.last_stable_offset >= model.last_stable_offset
            assert state.last_stable_offset <= min([*left.values(), model.high_watermark])
        for _ in range(3):
            await self._read(engine)

    async def _read(self, engine: EmbeddedEngine) -> None:
        random, model = self._random, self._model
        offset = random.randint(model.start, model.end)
        isolation = random.choice((_COMMITTED, _COMMITTED, _UNCOMMITTED))
        request = PartitionFetch(
            topic=ORDERS.topic,
            partition=ORDERS.partition,
            offset=offset,
            max_bytes=random.choice((1, 200, 600, 1 << 20)),
            isolation=isolation,
        )
        before = engine.state(ORDERS)
        (read,) = await engine.read([request], 1 << 20)
        if self._survivor is not None:
            return
        assert read.error is None, read.error
        headers = list(rb.iter_headers(read.batches))
        # A sync may have ended meanwhile.
        assert before.last_stable_offset <= read.last_stable_offset <= read.high_watermark <= model.end
        assert before.high_watermark <= read.high_watermark
        bound = before.last_stable_offset if isolation is _COMMITTED else before.high_watermark
        assert all(header.base_offset < bound for header in headers)
        assert bool(headers) == (offset < bound), (offset, bound)
        expected = [stored.header for stored in model.batches if stored.header.next_offset > offset][
            : len(headers)
        ]
        assert [header.crc for header in headers] == [header.crc for header in expected]
        self.reads += 1
        if isolation is _UNCOMMITTED:
            assert read.aborted is None
        elif headers:
            assert read.aborted is not None
            must = model.aborted_in(offset, headers[-1].next_offset)
            if not self._deletes:
                assert list(read.aborted) == must
            # A start knows nothing of deleted batches, so a transaction may seem to begin later; what is
            # left of it is aborted all the same.
            assert _aborted_batches(headers, read.aborted) == _aborted_batches(headers, must)
            self.aborted_seen += len(read.aborted)
        else:
            assert not read.aborted

    def _check_files(self) -> None:
        """Check the index files of a log that was closed: those of the active segment, too."""
        bases = sorted(int(path.stem) for path in self._files.paths() if path.suffix == ".log")
        _, aborted = self._model.open_and_aborted()
        for base, following in zip(bases, [*bases[1:], 1 << 60], strict=True):
            expected = TransactionIndex(entry for entry in aborted if base <= entry.last_offset < following)
            path = segment_path(base, ".txnindex")
            found = bytes(self._files.content(path)) if path in self._files.paths() else None
            if self._deletes:
                # As in ``_check``: entries may have been made again without deleted batches.
                told = {
                    entry.last_offset
                    for entry in expected.entries()
                    if entry.first_offset >= self._model.start
                }
                kept = TransactionIndex.from_bytes(found or b"", base_offset=base, next_offset=following)
                assert kept is not None, path
                assert told <= {entry.last_offset for entry in kept.entries()}, path
            else:
                assert found == (expected.to_bytes() or None), path

    # ── what a broker does ──

    async def _step(self, engine: EmbeddedEngine) -> None:
        random = self._random
        choice = random.random()
        if choice < 0.7:
            for _ in range(random.choice((1, 1, 4))):
                self._append(engine)
        elif choice < 0.8:
            await engine.flush()
            if self._survivor is None:
                self._synced_end = self._model.end
        elif choice < 0.84 and self._deletes:
            # Deleted batches that were not synced might be lost, and what they say of producers.
            start = self._model.start
            before = random.randint(start, max(start, min(self._synced_end, self._model.high_watermark)))
            self._model.start = await engine.delete_records(ORDERS, before)
        elif choice < 0.88 and self._deletes:
            await engine.enforce_retention()
            if self._survivor is None:
                self._model.start = engine.state(ORDERS).log_start_offset
        elif self._survivor is None:
            await self._check(engine)

    def _append(self, engine: EmbeddedEngine) -> None:
        random, model = self._random, self._model
        if self._survivor is not None:
            return
        view = self._states.view(producer_id := random.choice(_PRODUCERS))
        is_open = view is not None and view.transaction_start_offset >= 0
        epoch = 0 if view is None else view.epoch
        marker: EndTransactionMarker | None = None
        if (is_open and random.random() < 0.4) or random.random() < 0.03:
            marker = EndTransactionMarker(type=random.choice(tuple(MarkerType)), coordinator_epoch=3)
            # Both kinds of clients: those whose epoch rises with each transaction, and the others.
            epoch += random.randint(0, 1)
            batch = marker_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=5)
        elif random.random() < 0.2:
            batch = batch_of([b"plain"] * random.randint(1, 3))
        else:
            sequence = 0 if view is None else view.last_sequence + 1
            batch = batch_of(
                [b"x" * random.randint(1, 40)] * random.randint(1, 3),
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=is_open or random.random() < 0.9,
            )
        header = rb.read_header(batch)
        ticket = engine.append(ORDERS, batch, [header], sync=random.random() < 0.2)
        # If the life ended in the middle of it, the next start shows whether it is there.
        model.batches.append(Stored(header, marker, is_awaited=ticket.future is not None))


def _aborted_batches(headers: list[rb.BatchHeader], aborted: Iterable[AbortedTransaction]) -> set[int]:
    """Return the base offsets of the batches that belong to one of the transactions."""
    return {
        header.base_offset
        for header in headers
        for one in aborted
        if not header.is_control
        and header.producer_id == one.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
    }
