"""Objects to commit, and random calls of ``Meta`` that two implementations must answer alike."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast
from uuid import UUID

from stele.wire.control_record import MarkerType
from stele.wire.record_batch import LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader

from app.storage.shared.meta import (
    ByteSpan,
    CleaningPlan,
    CommitAnswer,
    ExpectedEnd,
    KeptLog,
    KnownLog,
    LogDirt,
    MergedObject,
    MergePlan,
    Meta,
    ObjectFenced,
    ObjectWrite,
    ProducerRow,
    RunPlace,
    RunsWanted,
    RunWrite,
    TransactionClaim,
)
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce

from .shared_names import IdChange, Names, untimed_update

# Producer ids of named producers, and of transactional ids.
NAMED = {"one": 21, "two": 22}
IDS = {"a": 31, "b": 32}
# Two brokers.
UPLOADERS = (UUID(int=1), UUID(int=2))
FOREVER_S = 1e8
FAR_FUTURE_MS = 1 << 45


def batch(
    records: int,
    *,
    size: int = 100,
    max_timestamp: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=size - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=records - 1,
        base_timestamp=max_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=records,
    )


TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT_BYTES, COMMIT_BYTES = 78, 79


def marker(producer_id: int, epoch: int, *, size: int) -> BatchHeader:
    return batch(
        1, size=size, producer_id=producer_id, producer_epoch=epoch, attributes=TRANSACTIONAL | CONTROL
    )


def written_object(
    key: str,
    runs: Sequence[tuple[int, Sequence[BatchHeader]]],
    *,
    is_inline: bool = False,
    claims: Sequence[Mapping[int, TransactionClaim]] = (),
    expected_ends: Sequence[Mapping[int, ExpectedEnd]] = (),
    are_copies: bool = False,
) -> ObjectWrite:
    """Return an object with these batches, by log; ``claims`` and ``expected_ends`` are those of each of ``runs``."""
    position = 8
    writes: list[RunWrite] = []
    for at, (log_id, headers) in enumerate(runs):
        writes.append(
            RunWrite(
                log_id=log_id,
                position=position,
                headers=headers,
                # In tests the size of a marker says how the transaction ended.
                aborts=frozenset(
                    index
                    for index, header in enumerate(headers)
                    if header.is_control and header.size == ABORT_BYTES
                ),
                claims=claims[at] if claims else {},
                expected_ends=expected_ends[at] if expected_ends else {},
                copies={index: _marker_in(header) for index, header in enumerate(headers)}
                if are_copies
                else {},
            )
        )
        position += sum(header.size for header in headers)
    inline = key.encode().ljust(position, b".") if is_inline else None
    return ObjectWrite(key=key, uploader=UPLOADERS[0], size=position, runs=writes, inline=inline)


def _marker_in(header: BatchHeader) -> MarkerType | None:
    if not header.is_control:
        return None
    return MarkerType.ABORT if header.size == ABORT_BYTES else MarkerType.COMMIT


def told(answer: Any) -> Any:
    """Return an answer so that it can be compared: errors by their text, and no times."""
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, ProducerRow):
        return answer._replace(last_timestamp_ms=0)
    if isinstance(answer, RunPlace):
        return [told(answer.places), answer.log]
    if isinstance(answer, dict):
        return {key: told(value) for key, value in cast(dict[Any, Any], answer).items()}
    if isinstance(answer, list | tuple):
        return [told(value) for value in cast(list[Any], answer)]
    return answer


async def outcome(call: Coroutine[Any, Any, object]) -> object:
    """Return the answer of a call, or the error with which it answered."""
    try:
        return await call
    except ObjectFenced as error:
        return error


@dataclass(slots=True)
class RandomCalls:
    """Calls of ``Meta`` that depend on the seed and on the answers; ``both`` makes a call and compares."""

    random: Random
    both: Callable[[Callable[[Meta], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
    both_names: Callable[[Callable[[Names], Coroutine[Any, Any, Any]]], Coroutine[Any, Any, Any]]
    topics: list[UUID] = field(default_factory=list[UUID])
    logs: list[int] = field(default_factory=list[int])
    keys: list[str] = field(default_factory=list[str])
    committed: list[tuple[list[ObjectWrite], CommitAnswer]] = field(
        default_factory=list[tuple[list[ObjectWrite], CommitAnswer]]
    )
    plans: list[MergePlan] = field(default_factory=list[MergePlan])
    merged: list[tuple[MergePlan, MergedObject]] = field(default_factory=list[tuple[MergePlan, MergedObject]])
    epoch_sequences: dict[tuple[int, int, int], int] = field(default_factory=dict[tuple[int, int, int], int])
    sequences: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    recent: dict[tuple[int, int], list[BatchHeader]] = field(
        default_factory=dict[tuple[int, int], list[BatchHeader]]
    )
    # Epochs by name, as far as the calls know.
    versions: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    id_epochs: dict[str, int] = field(default_factory=dict[str, int])
    ends: dict[int, int] = field(default_factory=dict[int, int])
    stable: dict[int, int] = field(default_factory=dict[int, int])

    async def step(self) -> None:
        calls = {
            self._create: 2,
            self._commit: 30,
            self._commit_again: 4,
            self._copy: 10,
            self._skip_copies: 2,
            self._end_copies: 1,
            self._fence: 3,
            self._read: 10,
            self._by_time: 3,
            self._producers: 3,
            self._aborted: 3,
            self._delete_records: 4,
            self._retain: 5,
            self._merge: 10,
            self._merge_again: 2,
            self._clean: 6,
            self._look_up: 3,
            self._collect: 6,
            self._delete: 1,
            self._uploaders: 3,
            self._begin_version: 3,
            self._update_ids: 8,
        }
        (chosen,) = self.random.choices(list(calls), list(calls.values()))
        await chosen()

    def _new_key(self) -> str:
        self.keys.append(f"w/{len(self.keys)}")
        return self.keys[-1]

    def _log(self) -> int:
        # Some do not exist.
        return self.random.choice([*self.logs, 999]) if self.logs else 999

    async def _create(self) -> None:
        topic_id = UUID(int=self.random.getrandbits(128))
        if self.topics and self.random.random() < 0.5:
            topic_id = self.random.choice(self.topics)
        rows = await self.both(lambda meta: meta.create_logs(topic_id, 1 + topic_id.int % 3))
        self.topics += [] if topic_id in self.topics else [topic_id]
        self.logs = sorted({*self.logs, *(row.log_id for row in rows)})

    def _batch(self, log_id: int) -> BatchHeader:
        random = self.random
        records, size = random.randint(1, 4), random.randint(70, 300)
        max_timestamp = random.choice(
            [random.randint(0, 1000), FAR_FUTURE_MS + random.randint(0, 1000), NO_TIMESTAMP]
        )
        producer_id = random.choice([NO_PRODUCER_ID, 1, 2])
        if producer_id == NO_PRODUCER_ID:
            return batch(records, size=size, max_timestamp=max_timestamp)
        recent = self.recent.setdefault((log_id, producer_id), [])
        if recent and random.random() < 0.15:
            # A retry.
            return random.choice(recent[-7:])
        if random.random() < 0.2:
            # Of an older epoch now and then.
            epoch = random.choices([0, 1], [200, 1])[0]
            return marker(producer_id, epoch, size=random.choice([ABORT_BYTES, COMMIT_BYTES]))
        known = self.sequences.get((log_id, producer_id), 0)
        is_next = random.random() < 0.8
        base_sequence = known if is_next else max(0, known + random.randint(-6, 2))
        if is_next:
            self.sequences[log_id, producer_id] = known + records
        header = batch(
            records,
            size=size,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=random.choices([0, 1], [200, 1])[0],
            base_sequence=base_sequence,
            # Producer 2 is mostly transactional.
            attributes=TRANSACTIONAL if producer_id == 2 and random.random() < 0.9 else 0,
        )
        recent += [header] if is_next else []
        return header

    def _batch_of_name(self, log_id: int) -> BatchHeader:
        """Return a batch of a named producer, mostly of its newest version."""
        name = self.random.choice(list(self.versions))
        version, epoch = self.versions[name]
        del version
        return self._next_batch(log_id, NAMED[name], epoch - (epoch > 0 and self.random.random() < 0.3), 0)

    def _batch_of_id(self, log_id: int) -> tuple[BatchHeader, TransactionClaim]:
        """Return a transactional batch and its claim, both mostly right."""
        random = self.random
        name = random.choice(list(self.id_epochs))
        epoch = self.id_epochs[name] - (self.id_epochs[name] > 0 and random.random() < 0.1)
        header = self._next_batch(log_id, IDS[name], epoch, TRANSACTIONAL)
        produce = TransactionalProduce(
            transactional_id=name if random.random() < 0.95 else "another",
            adds_partitions=random.random() < 0.5,
            is_abortable_known=random.random() < 0.5,
        )
        return header, TransactionClaim(produce, TopicPartition("orders", random.randint(0, 1)))

    def _next_batch(self, log_id: int, producer_id: int, epoch: int, attributes: int) -> BatchHeader:
        """Return the batch after the last one of an epoch, or now and then another one."""
        records = self.random.randint(1, 4)
        known = self.epoch_sequences.get((log_id, producer_id, epoch), 0)
        is_next = self.random.random() < 0.9
        if is_next:
            self.epoch_sequences[log_id, producer_id, epoch] = known + records
        return batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=known if is_next else max(0, known - 1),
            attributes=attributes,
        )

    def _run(self, log_id: int) -> tuple[list[BatchHeader], dict[int, TransactionClaim]]:
        headers: list[BatchHeader] = []
        claims: dict[int, TransactionClaim] = {}
        for at in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if kind < 0.2 and self.versions:
                headers.append(self._batch_of_name(log_id))
            elif kind < 0.45 and self.id_epochs:
                header, claims[at] = self._batch_of_id(log_id)
                headers.append(header)
            else:
                headers.append(self._batch(log_id))
        return headers, claims

    def _expected_ends(self, log_id: int, headers: Sequence[BatchHeader]) -> dict[int, ExpectedEnd]:
        """Return the ends that some of these batches expect, mostly right if all before them are stored."""
        ends: dict[int, ExpectedEnd] = {}
        end = self.ends.get(log_id, 0)
        for at, header in enumerate(headers):
            if self.random.random() < 0.2 and not header.is_control:
                offset = max(0, end + self.random.choice([0, 0, 0, -1, 1]))
                ends[at] = ExpectedEnd(offset, TopicPartition("orders", 0))
            end += header.last_offset_delta + 1
        return ends

    async def _begin_version(self) -> None:
        name = self.random.choice(list(NAMED))
        version = self.versions.get(name, (0, 0))[0] + self.random.choice([0, 1, 1])
        begun, _, epoch, _ = await self.both_names(
            lambda names: names.begin_version(name, version, NAMED[name])
        )
        self.versions[name] = begun, epoch

    async def _update_ids(self) -> None:
        random = self.random
        changes = {
            name: IdChange(
                IDS[name],
                random.choice(["begin", "add", "add", "commit", "commit", "abort"]),
                ("orders", random.randint(0, 1)),
            )
            for name in random.sample(list(IDS), random.randint(1, len(IDS)))
        }
        await self.both_names(lambda names: _updated(names, changes))
        records = await self.both_names(lambda names: names.records())
        self.id_epochs = {record.transactional_id: record.epoch for record in records}
        await self.both_names(lambda names: names.opened())

    async def _commit(self) -> None:
        objects: list[ObjectWrite] = []
        for _ in range(self.random.randint(1, 3)):
            logs = sorted({self._log() for _ in range(self.random.randint(1, 3))})
            written = [(log_id, *self._run(log_id)) for log_id in logs]
            objects.append(
                written_object(
                    self._new_key(),
                    [(log_id, headers) for log_id, headers, _ in written],
                    is_inline=self.random.random() < 0.3,
                    claims=[claims for _, _, claims in written],
                    expected_ends=[self._expected_ends(log_id, headers) for log_id, headers, _ in written],
                )
            )
        answer: CommitAnswer = await self.both(lambda meta: meta.commit_objects(objects))
        self.committed.append((objects, answer))
        for log in (run.log for of_object in answer for run in of_object):
            if log is not None:
                self.ends[log.log_id] = log.next_offset

    async def _copy(self) -> None:
        """Append what a mirror copies, with holes, mostly at the end of the log."""
        random, log_id = self.random, self._copied_log()
        end = max(0, self.ends.get(log_id, 0) + random.choice([0] * 9 + [-1]))
        headers: list[BatchHeader] = []
        ends: dict[int, ExpectedEnd] = {}
        for at in range(random.randint(1, 4)):
            ends[at] = ExpectedEnd(end, TopicPartition("orders", 0))
            producer_id, is_marker = random.choice([NO_PRODUCER_ID, 1, 2]), random.random() < 0.3
            header = (
                marker(producer_id, 0, size=random.choice([ABORT_BYTES, COMMIT_BYTES]))
                if is_marker and producer_id != NO_PRODUCER_ID
                else batch(
                    random.randint(1, 4),
                    producer_id=producer_id,
                    producer_epoch=-1 if producer_id == NO_PRODUCER_ID else random.choice([0, 0, 0, 1]),
                    base_sequence=-1 if producer_id == NO_PRODUCER_ID else random.randint(0, 50),
                    attributes=TRANSACTIONAL if producer_id == 2 else 0,
                )
            )
            offset = end + random.choice([0, 0, 3])
            headers.append(replace(header, base_offset=offset, partition_leader_epoch=offset // 20))
            end = headers[-1].next_offset
        written = written_object(self._new_key(), [(log_id, headers)], expected_ends=[ends], are_copies=True)
        answer: CommitAnswer = await self.both(lambda meta: meta.commit_objects([written]))
        self.committed.append(([written], answer))
        if (log := answer[0][0].log) is not None:
            self.ends[log_id] = log.next_offset

    def _copied_log(self) -> int:
        """Return one of the logs that are mostly copies."""
        copies = [log_id for log_id in self.logs if log_id % 3 == 0]
        return self.random.choice(copies) if copies else self._log()

    async def _skip_copies(self) -> None:
        log_id = self._copied_log()
        end = max(0, self.ends.get(log_id, 0) + self.random.choice([0, 0, -1]))
        offset = end + self.random.randint(1, 30)
        row = await self.both(lambda meta: meta.skip_copies(log_id, expected_end=end, offset=offset))
        if row is not None:
            self.ends[log_id] = row.next_offset

    async def _end_copies(self) -> None:
        some = [self._copied_log(), self._log()]
        rows = await self.both(lambda meta: meta.end_copies(sorted(set(some))))
        for log_id in rows:
            await self.both(lambda meta, log_id=log_id: meta.forget_producers(log_id))

    async def _commit_again(self) -> None:
        if self.committed:
            objects, answer = self.random.choice(self.committed)
            await self.both(lambda meta: meta.commit_objects(objects, computed=answer))

    async def _fence(self) -> None:
        known = self.random.sample(self.keys, min(3, len(self.keys)))
        fresh = self._new_key()
        await self.both(lambda meta: meta.fence(UPLOADERS[1], [*known, fresh]))
        late = written_object(fresh, [(self._log(), [batch(1)])])
        other = written_object(self._new_key(), [(self._log(), [batch(1)])])
        await self.both(lambda meta: meta.commit_objects([other, late]))

    async def _read(self) -> None:
        states = await self.both(lambda meta: meta.log_rows([*self.logs, 999]))
        known = [
            KnownLog(
                row.log_id,
                row.log_start - self.random.choice((0, 0, 0, 1)),
                row.next_offset - self.random.choice((0, 0, 0, 1)),
                row.size_bytes - self.random.choice((0, 0, 0, 1)),
                row.history - self.random.choice((0, 0, 0, 1)),
            )
            for row in states.values()
        ]
        if known:
            await self.both(lambda meta: meta.moved_logs([*known, KnownLog(999, 0, 0, 0, 0)]))
        wanted = [
            RunsWanted(row.log_id, self.random.randint(0, row.next_offset + 1), self.random.randint(0, 2000))
            for row in states.values()
        ]
        await self.both(lambda meta: meta.runs(wanted))
        for row in states.values():
            # Kept across calls: the end of a log never falls.
            assert row.next_offset >= self.ends.get(row.log_id, 0)
            self.ends[row.log_id] = row.next_offset
            assert row.last_stable >= self.stable.get(row.log_id, 0)
            self.stable[row.log_id] = row.last_stable

    async def _by_time(self) -> None:
        log_id = self._log()
        timestamp = self.random.choice([0, 500, FAR_FUTURE_MS + 500])
        await self.both(lambda meta: meta.run_at_time(log_id, timestamp))
        from_offset = self.random.choice([0, self.random.randint(0, self.ends.get(log_id, 0) + 1)])
        await self.both(lambda meta: meta.newest_run(log_id, from_offset))

    async def _producers(self) -> None:
        log_id = self._log()
        await self.both(lambda meta: meta.producers(log_id))
        idle_s = self.random.choices([FOREVER_S, 0.0], [9, 1])[0]
        await self.both(lambda meta: meta.expire_producers(idle_s))

    async def _aborted(self) -> None:
        log_id = self._log()
        offset = self.random.randint(0, self.ends.get(log_id, 0) + 1)
        end_offset = offset + self.random.randint(0, 20)
        await self.both(lambda meta: meta.aborted(log_id, offset, end_offset))

    async def _delete_records(self) -> None:
        log_id = self._log()
        before_offset = self.random.randint(0, self.ends.get(log_id, 0) + 3)
        await self.both(lambda meta: meta.delete_records(log_id, before_offset))

    async def _retain(self) -> None:
        log_id = self._log()
        retention_s = self.random.choice([None, 3600.0])
        retention_bytes = self.random.choice([None, 500, 5000])
        kept = KeptLog(log_id, retention_s, retention_bytes)
        expiring = await self.both(lambda meta: meta.expiring([kept, KeptLog(999, 0.0, 0)]))
        retained = await self.both(
            lambda meta: meta.retain(log_id, retention_s=retention_s, retention_bytes=retention_bytes)
        )
        assert bool(expiring) == (retained is not None and retained.runs_deleted > 0)

    async def _merge(self) -> None:
        claim_s = self.random.choice([0.0, 0.0, FOREVER_S])
        min_bytes = self.random.choice([0, 1000])
        min_age_s = self.random.choice([0.0, FOREVER_S])
        max_bytes = self.random.choice([300, 3000])
        plan = await self.both(
            lambda meta: meta.plan_merge(
                claim_s=claim_s, min_bytes=min_bytes, min_age_s=min_age_s, max_bytes=max_bytes
            )
        )
        if plan is not None:
            self.plans.append(plan)
        if self.plans and self.random.random() < 0.7:
            # Not always the newest plan, so some are outdated.
            taken = self.plans.pop(self.random.randrange(len(self.plans)))
            length = sum(run.length for run in taken.runs)
            merged = MergedObject(
                key=self._new_key(),
                uploader=UPLOADERS[1],
                size=length + 20,
                position=8,
                length=length,
                max_timestamp=max(run.max_timestamp for run in taken.runs),
                sparse_index=self.random.choice([b"", b"index"]),
                inline=self.random.choice([None, bytes(length + 20)]),
            )
            await self.both(lambda meta: meta.commit_merge(taken, merged))
            self.merged.append((taken, merged))

    async def _merge_again(self) -> None:
        if self.merged:
            plan, merged = self.random.choice(self.merged)
            await self.both(lambda meta: meta.commit_merge(plan, merged))

    async def _clean(self) -> None:
        log_id = self._log()
        await self.both(lambda meta: _untimed(meta.dirt([log_id, *self.logs])))
        claim_s = self.random.choice([0.0, 0.0, FOREVER_S])
        plan = await self.both(lambda meta: _unsalted(meta.plan_cleaning(log_id, claim_s=claim_s)))
        if plan is None:
            return
        runs = [committed.run for committed in plan.runs]
        # A part of them, now or later.
        start = self.random.randrange(len(runs) + 1)
        some = runs[start : start + self.random.randint(1, 4)]
        if plan.aborted and self.random.random() < 0.7:
            # All up to a marker that may go.
            start, marked = 0, self.random.choice(plan.aborted).last_offset
            some = [run for run in runs if run.base_offset <= marked]
        if some:
            length = self.random.randint(61, 300)
            merged = MergedObject(
                key=self._new_key(),
                uploader=UPLOADERS[1],
                size=length + 120,
                position=8,
                length=length,
                max_timestamp=self.random.choice([-1, 500]),
                sparse_index=b"",
                cleaned_until=runs[-1].last_offset + 1,
                keeps_claim=True,
                keys=self.random.choice([None, ByteSpan(8 + length, 56)]),
                gone_markers=[
                    aborted.last_offset
                    for aborted in plan.aborted
                    if some[0].base_offset <= aborted.last_offset <= some[-1].last_offset
                    and self.random.random() < 0.5
                ],
            )
            plan_of_some = MergePlan(log=plan.log, runs=some)
            if start == 0 or some[0].is_merged or runs[start - 1].is_merged:
                await self.both(lambda meta: meta.commit_merge(plan_of_some, merged))
                self.merged.append((plan_of_some, merged))
                await self.both(lambda meta: meta.aborted(log_id, 0, runs[-1].last_offset + 1))
        await self.both(lambda meta: meta.extend_claim(log_id, claim_s=claim_s))
        first_dirty = self.random.choice([None, plan.first_dirty, runs[-1].last_offset + 1 if runs else 0])
        await self.both(lambda meta: meta.end_cleaning(log_id, first_dirty))

    async def _look_up(self) -> None:
        log_id = self._log()
        offset = self.random.randint(0, self.ends.get(log_id, 0))
        await self.both(lambda meta: _unsalted(meta.key_runs(log_id, offset)))

    async def _collect(self) -> None:
        await self.both(lambda meta: meta.sweep())
        dead_s = self.random.choice([0.0, FOREVER_S])
        dead = await self.both(lambda meta: _sorted(meta.dead_objects(dead_s)))
        some = [ref.key for ref in dead if self.random.random() < 0.5]
        await self.both(lambda meta: meta.bytes_deleted(some))
        if self.random.random() < 0.1:
            await self.both(lambda meta: meta.forget_objects(FOREVER_S))

    async def _delete(self) -> None:
        if self.topics:
            # Its id is never used again.
            topic_id = self.topics.pop(self.random.randrange(len(self.topics)))
            await self.both(lambda meta: meta.delete_logs(topic_id))
            # Mostly forgotten, as by a broker that knows of the deletion.
            if self.random.random() < 0.8:
                self.logs = sorted(await self.both(lambda meta: meta.log_rows(self.logs)))
        await self.both(lambda meta: meta.purge())

    async def _uploaders(self) -> None:
        uploader = self.random.choice(UPLOADERS)
        await self.both(lambda meta: meta.heartbeat(uploader))
        await self.both(lambda meta: looked_at(meta, 0.0))
        await self.both(lambda meta: looked_at(meta, FOREVER_S))
        forget_s = self.random.choice((None, 0.0, FOREVER_S))
        if forget_s is not None:
            await self.both(lambda meta: meta.note_look(uploader, forget_s))
            await self.both(lambda meta: looked_at(meta, 0.0))


async def looked_at(meta: Meta, silent_s: float) -> list[tuple[UUID, bool]]:
    """Return the silent uploaders, and whether their objects have been listed: without times."""
    silent = await meta.silent_uploaders(silent_s)
    return sorted((one.uploader, one.looked_s is not None) for one in silent)


async def _updated(names: Names, changes: dict[str, IdChange]) -> Sequence[Any]:
    return untimed_update(await names.update(changes))


async def _sorted(call: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    return sorted(await call)


async def _unsalted(call: Coroutine[Any, Any, Any]) -> Any:
    """Return a plan without what differs between two implementations: the salt, and times."""
    plan = await call
    if isinstance(plan, CleaningPlan):
        runs = [committed._replace(committed_ms=0) for committed in plan.runs]
        return replace(plan, key_salt=b"", now_ms=0, runs=runs)
    return None if plan is None else replace(plan, key_salt=b"")


async def _untimed(call: Coroutine[Any, Any, dict[int, LogDirt]]) -> dict[int, object]:
    """Return how dirty logs are; the time of the oldest dirty run only if a producer set it."""
    found = {
        log_id: replace(
            dirt,
            now_ms=0,
            dirty_since_ms=None
            if dirt.dirty_since_ms is None
            else min(dirt.dirty_since_ms, FAR_FUTURE_MS // 1000),
        )
        for log_id, dirt in (await call).items()
    }
    return dict(sorted(found.items()))
