"""Brokers over shared storage keep their promises through kills, pauses and faults (ADR-0041).

Each seed is one run of ``tests/support/shared_cluster.py``. The mutants are engines or metadata with one
mistake each; the same runs must notice them, or they would notice nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from app.cluster.shared_transactions import EndOfTransaction
from app.errors import CorruptLog
from app.storage.engine import AppendTicket
from app.storage.shared.cleaning_work import CleaningWork
from app.storage.shared.commit_rules import Decision, ProducerKey
from app.storage.shared.committer import Committer, Pending
from app.storage.shared.compactor import Compactor
from app.storage.shared.engine import SharedEngine
from app.storage.shared.histories import Histories
from app.storage.shared.log import LostRecords, SharedLog
from app.storage.shared.log_ends import LogEnds
from app.storage.shared.meta import (
    CleaningPlan,
    CommitAnswer,
    CommitUnknown,
    CopyPhase,
    ExpectedEnd,
    KeyRuns,
    LogRow,
    MergedObject,
    MergePlan,
    ObjectRef,
    ObjectWrite,
    RunRead,
    RunWrite,
    StoreKind,
)
from app.storage.shared.upkeep import KeyIndexing, Upkeep
from app.storage.topic_partition import TopicPartition
from tests.support.compacted_cluster import CompactedCluster
from tests.support.compacted_transactions import CompactedTransactionsCluster
from tests.support.conditional_cluster import ConditionalCluster
from tests.support.copying_cluster import CopyingCluster
from tests.support.failover_cluster import FailoverCluster
from tests.support.histories import seed_ranges, silenced
from tests.support.model_meta import ModelMeta, ModelObject
from tests.support.model_transactions import ModelTransactions
from tests.support.shared_cluster import Cluster, simulate
from tests.support.transactional_cluster import TransactionalCluster

# A mutant that survives so many is not noticed.
MUTANT_SEEDS = 400

pytestmark = pytest.mark.usefixtures("without_pauses")


@pytest.fixture(autouse=True)
def without_logs() -> Iterator[None]:
    with silenced("app.storage.shared"):
        yield


@pytest.mark.parametrize("seeds", seed_ranges(100, 500))
def test_no_promise_is_broken(seeds: range) -> None:
    run_all(seeds, Cluster)


@pytest.mark.parametrize("seeds", seed_ranges(10, 100))
def test_no_promise_is_broken_in_compacted_topics(seeds: range) -> None:
    run_all(seeds, CompactedCluster)


@pytest.mark.parametrize("seeds", seed_ranges(10, 100))
def test_no_promise_is_broken_in_transactions(seeds: range) -> None:
    run_all(seeds, TransactionalCluster)


@pytest.mark.parametrize("seeds", seed_ranges(30, 200))
def test_no_promise_is_broken_when_the_database_fails_over(seeds: range) -> None:
    run_all(seeds, FailoverCluster)


@pytest.mark.parametrize("seeds", seed_ranges(5, 50))
def test_no_promise_is_broken_in_transactions_on_compacted_topics(seeds: range) -> None:
    run_all(seeds, CompactedTransactionsCluster)


@pytest.mark.parametrize("seeds", seed_ranges(30, 200))
def test_no_promise_is_broken_in_conditional_appends(seeds: range) -> None:
    run_all(seeds, ConditionalCluster)


@pytest.mark.parametrize("seeds", seed_ranges(20, 200))
def test_no_promise_is_broken_in_copies(seeds: range) -> None:
    run_all(seeds, CopyingCluster)


def run_all(seeds: range, cluster_class: type[Cluster]) -> None:
    for seed in seeds:
        try:
            simulate(seed, cluster_class=cluster_class)
        except BaseException as error:
            error.add_note(f"simulate({seed}, cluster_class={cluster_class.__name__})")
            raise


# ── mutants ──


class MergeWithoutLock(ModelMeta):
    """Looks at the runs of a plan first, and replaces them later without the lock of the log."""

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        runs = self.runs_of.get(plan.log.log_id, [])
        if any(run not in runs for run in plan.runs):
            return await super().commit_merge(plan, merged)
        await asyncio.sleep(0.3)
        runs = self.runs_of[plan.log.log_id]
        merged_run = RunRead(
            plan.runs[0].base_offset,
            plan.runs[-1].last_offset,
            ObjectRef(merged.key, StoreKind.OBJECTS),
            merged.position,
            merged.length,
            0,
            is_merged=True,
            sparse_index=merged.sparse_index,
        )
        kept = [run for run in runs if run not in plan.runs]
        self.runs_of[plan.log.log_id] = sorted([*kept, merged_run], key=lambda run: run.base_offset)
        self.objects[merged.key] = ModelObject("c", StoreKind.OBJECTS, merged.size, merged.uploader)
        return True


class CommitOfFencedObjects(ModelMeta):
    """Commits objects that were fenced, whose bytes may be deleted."""

    async def commit_objects(
        self, objects: Sequence[ObjectWrite], *, computed: CommitAnswer | None = None
    ) -> CommitAnswer:
        for written in objects:
            found = self.objects.get(written.key)
            if found is not None and found.state == "f":
                del self.objects[written.key]
        return await super().commit_objects(objects, computed=computed)


class CommitWithoutVersions(ModelMeta):
    """Knows the epoch of a named producer only from the batches in a log."""

    def epochs_of_names(self) -> dict[int, int]:
        return {}


class CommitWithoutClaims(ModelMeta):
    """Does not look at the transactional ids of batches."""

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        return super().decide(
            [replace(written, runs=[replace(run, claims={}) for run in written.runs]) for written in objects]
        )


class CommitWithoutEnds(ModelMeta):
    """Does not look at the ends that batches expect."""

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        return super().decide(
            [
                replace(written, runs=[replace(run, expected_ends={}) for run in written.runs])
                for written in objects
            ]
        )


class CopiesAtAnyEnd(ModelMeta):
    """Stores copies wherever the log ends."""

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        return super().decide(
            [replace(written, runs=[self._moved(run) for run in written.runs]) for written in objects]
        )

    def _moved(self, run: RunWrite) -> RunWrite:
        row = self._row(run.log_id)
        if row is None or 0 not in run.copies:
            return run
        first = run.expected_ends[0]._replace(offset=row.next_offset)
        return replace(run, expected_ends={**run.expected_ends, 0: first})


class CopiesThatNeverEnd(ModelMeta):
    """Promises to take no copies any more."""

    async def end_copies(self, log_ids: Sequence[int]) -> dict[int, LogRow]:
        rows = await self.log_rows(log_ids)
        return {log_id: row.ended_copy() for log_id, row in rows.items()}

    def decide(self, objects: Sequence[ObjectWrite]) -> Decision:
        for written in objects:
            for run in written.runs:
                if not run.copies and (log := self._logs.get(run.log_id)) is not None:
                    # Only so do other appends succeed.
                    log.row = replace(log.row, copy_phase=CopyPhase.NEVER)
        return super().decide(objects)


class EngineThatComparesAlone(SharedEngine):
    """Compares an expected end with what this broker knows, before the commit."""

    def append(
        self, topic_partition: TopicPartition, *batches: Any, expected_end: int | None = None, **options: Any
    ) -> AppendTicket:
        end = self.state(topic_partition).log_end_offset
        if expected_end is not None:
            ExpectedEnd(expected_end, topic_partition).check(end)
        return super().append(topic_partition, *batches, **options)


class MarkersOfOneLog(ModelTransactions):
    """Ends a transaction in its first log only."""

    def open_keys(self, producer_ids: Collection[int]) -> list[ProducerKey]:
        return super().open_keys(producer_ids)[:1]


class OffsetsOfAborts(ModelTransactions):
    """Commits the offsets of a transaction that is aborted."""

    def end_offsets(self, end: EndOfTransaction) -> bool:
        return super().end_offsets(end._replace(is_commit=True))


class ClusterWithMarkersOfOneLog(TransactionalCluster):
    transactions_class = MarkersOfOneLog


class ClusterWithOffsetsOfAborts(TransactionalCluster):
    transactions_class = OffsetsOfAborts


class AckBeforeCommit(Committer):
    """Takes a commit whose answer is lost for one that happened."""

    async def commit_once(self, chosen: Sequence[Pending], computed: CommitAnswer | None) -> CommitAnswer:
        try:
            return await super().commit_once(chosen, computed)
        except CommitUnknown as error:
            return error.answer


class CommitsOutOfOrder(Committer):
    """Commits what is stored first, not what was appended first."""

    async def ready(self) -> list[Pending]:
        pending = list(self._pending)
        uploads = [each.uploaded for each in pending if each.uploaded is not None]
        if len(uploads) == len(pending):
            await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED)
        return [each for each in pending if each.uploaded is None or each.uploaded.done()]


class StaleEnds(LogEnds):
    """Believes that it knows the ends of all logs."""

    async def refresh(self, names: Collection[TopicPartition]) -> bool:
        return False


class CleaningWithoutComparison(ModelMeta):
    """Puts the object of a pass in the place of what is left of its runs."""

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        if merged.cleaned_until:
            planned = {run.last_offset for run in plan.runs}
            left = [run for run in self.runs_of.get(plan.log.log_id, []) if run.last_offset in planned]
            plan = replace(plan, runs=left or plan.runs)
        return await super().commit_merge(plan, merged)


class CompactorThatForgets(Compactor):
    """Takes a map that was full for one that knows all keys."""

    async def map_keys(self, plan: CleaningPlan, work: CleaningWork, end: int) -> int:
        await super().map_keys(plan, work, end)
        return end


class EngineWithForgetfulCompactor(SharedEngine):
    compactor_class = CompactorThatForgets


class EngineThatHidesCompaction(SharedEngine):
    """Does not say that records of a table may have been replaced since it began."""

    def compacted_until(self, topic_partition: TopicPartition) -> int:
        return 0


class CleaningWithAborted(ModelMeta):
    """Lets a pass take aborted records for committed ones, which replace others."""

    async def plan_cleaning(self, log_id: int, *, claim_s: float) -> CleaningPlan | None:
        plan = await super().plan_cleaning(log_id, claim_s=claim_s)
        return None if plan is None else replace(plan, aborted=())


class CleaningOfOpenTransactions(ModelMeta):
    """Does not tell a pass what is open."""

    async def plan_cleaning(self, log_id: int, *, claim_s: float) -> CleaningPlan | None:
        plan = await super().plan_cleaning(log_id, claim_s=claim_s)
        return None if plan is None else replace(plan, log=replace(plan.log, first_open=None))


class CleaningThatForgets(ModelMeta):
    """Forgets an aborted transaction when a pass has cleaned its marker, which is still there."""

    async def commit_merge(self, plan: MergePlan, merged: MergedObject) -> bool:
        if merged.cleaned_until:
            first_offset, last_offset = plan.runs[0].base_offset, plan.runs[-1].last_offset
            found = await self.aborted(plan.log.log_id, first_offset, last_offset + 1)
            forgotten = () if found is None else found.transactions
            merged = replace(merged, gone_markers=[transaction.last_offset for transaction in forgotten])
        return await super().commit_merge(plan, merged)


class LookUpsOfAborted(ModelMeta):
    """Lets look-ups and tables take aborted records for committed ones."""

    async def key_runs(self, log_id: int, offset: int) -> KeyRuns | None:
        runs = await super().key_runs(log_id, offset)
        return None if runs is None else replace(runs, aborted=())


class LookUpsOfOpenTransactions(ModelMeta):
    """Lets look-ups go past the last stable offset."""

    async def key_runs(self, log_id: int, offset: int) -> KeyRuns | None:
        runs = await super().key_runs(log_id, offset)
        return None if runs is None else replace(runs, stable_offset=runs.log.next_offset)


class UpkeepThatIndexesAll(Upkeep):
    """Puts the keys of aborted records into the key index of a merge."""

    async def indexing_of(self, plan: MergePlan) -> tuple[MergePlan, KeyIndexing | None]:
        plan, indexing = await super().indexing_of(plan)
        return plan, None if indexing is None else KeyIndexing(indexing.hasher)


class EngineThatIndexesAll(SharedEngine):
    upkeep_class = UpkeepThatIndexesAll


class EngineWithAckBeforeCommit(SharedEngine):
    committer_class = AckBeforeCommit


class EngineWithCommitsOutOfOrder(SharedEngine):
    committer_class = CommitsOutOfOrder


class EngineWithStaleEnds(SharedEngine):
    log_ends_class = StaleEnds


class HistoriesThatKeep(Histories):
    """Never lets what is known of a log fall, as if the metadata could not go back."""

    def adopt_log(self, log: SharedLog, row: LogRow) -> LostRecords | None:
        log.history = row.history
        log.update(row)
        return None


class EngineThatKeepsLogs(SharedEngine):
    histories_class = HistoriesThatKeep


class EngineWithOneEpoch(SharedEngine):
    """Lets clients go on where they are, whatever the metadata have lost."""

    def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int) -> tuple[int, int]:
        return epoch, self.log(topic_partition).next_offset


MUTANTS: dict[str, tuple[type[SharedEngine], type[ModelMeta]]] = {
    "a merge without the lock of the log": (SharedEngine, MergeWithoutLock),
    "a commit of fenced objects": (SharedEngine, CommitOfFencedObjects),
    "a commit that does not look at versions": (SharedEngine, CommitWithoutVersions),
    "an acknowledgement before the commit": (EngineWithAckBeforeCommit, ModelMeta),
    "commits out of order": (EngineWithCommitsOutOfOrder, ModelMeta),
    "an end that is not refreshed": (EngineWithStaleEnds, ModelMeta),
}


# For failovers of the database.
FAILOVER_MUTANTS: dict[str, type[SharedEngine]] = {
    "logs that are kept in another history": EngineThatKeepsLogs,
    "an epoch that never ends": EngineWithOneEpoch,
}


# For conditional appends.
CONDITIONAL_MUTANTS: dict[str, tuple[type[SharedEngine], type[ModelMeta]]] = {
    "a commit that does not look at ends": (SharedEngine, CommitWithoutEnds),
    "an end that one broker alone compares": (EngineThatComparesAlone, ModelMeta),
}


# For copies.
COPY_MUTANTS: dict[str, type[ModelMeta]] = {
    "copies wherever the log ends": CopiesAtAnyEnd,
    "copies after their end": CopiesThatNeverEnd,
}


# For compacted topics.
COMPACTION_MUTANTS: dict[str, tuple[type[SharedEngine], type[ModelMeta]]] = {
    "a replacement that is not compared with its plan": (SharedEngine, CleaningWithoutComparison),
    "a map that was full": (EngineWithForgetfulCompactor, ModelMeta),
    "a table without what was replaced": (EngineThatHidesCompaction, ModelMeta),
}


# For transactions.
TRANSACTION_MUTANTS: dict[str, tuple[type[ModelMeta], type[Cluster]]] = {
    "a commit that does not look at transactional ids": (CommitWithoutClaims, TransactionalCluster),
    "an end without all markers": (ModelMeta, ClusterWithMarkersOfOneLog),
    "the offsets of an abort": (ModelMeta, ClusterWithOffsetsOfAborts),
}


# For transactions on compacted topics.
COMPACTED_TRANSACTION_MUTANTS: dict[str, tuple[type[SharedEngine], type[ModelMeta]]] = {
    "a pass over aborted records": (SharedEngine, CleaningWithAborted),
    "a pass over open transactions": (SharedEngine, CleaningOfOpenTransactions),
    "a marker without its transaction": (SharedEngine, CleaningThatForgets),
    "a look-up of aborted records": (SharedEngine, LookUpsOfAborted),
    "a look-up past the last stable offset": (SharedEngine, LookUpsOfOpenTransactions),
    "a key index with aborted records": (EngineThatIndexesAll, ModelMeta),
}


# Seeds that notice a mutant which few do. They are tried first; if one notices it no longer, the others follow.
NOTICED_BY = {
    "a key index with aborted records": 60,
    "a look-up past the last stable offset": 21,
    "a map that was full": 45,
    "a pass over open transactions": 60,
    "a replacement that is not compared with its plan": 33,
    "a table without what was replaced": 74,
    "an acknowledgement before the commit": 6,
    "an epoch that never ends": 46,
    "commits out of order": 49,
}


def assert_noticed(mutant: str, **classes: Any) -> None:
    for seed in chain([NOTICED_BY.get(mutant, 0)], range(MUTANT_SEEDS)):
        try:
            simulate(seed, **classes)
        except (AssertionError, CorruptLog):
            return
    pytest.fail(f"{mutant} was not noticed")


@pytest.mark.parametrize("mutant", COMPACTED_TRANSACTION_MUTANTS)
def test_each_mutant_of_transactions_on_compacted_topics_is_noticed(mutant: str) -> None:
    engine_class, meta_class = COMPACTED_TRANSACTION_MUTANTS[mutant]
    assert_noticed(
        mutant,
        engine_class=engine_class,
        meta_class=meta_class,
        cluster_class=CompactedTransactionsCluster,
    )


@pytest.mark.parametrize(
    "mutant",
    [
        # It takes minutes to go wrong.
        pytest.param(mutant, marks=pytest.mark.long if mutant.startswith("logs that are kept") else ())
        for mutant in FAILOVER_MUTANTS
    ],
)
def test_each_mutant_of_failovers_is_noticed(mutant: str) -> None:
    assert_noticed(mutant, engine_class=FAILOVER_MUTANTS[mutant], cluster_class=FailoverCluster)


@pytest.mark.parametrize("mutant", CONDITIONAL_MUTANTS)
def test_each_mutant_of_conditional_appends_is_noticed(mutant: str) -> None:
    engine_class, meta_class = CONDITIONAL_MUTANTS[mutant]
    assert_noticed(mutant, engine_class=engine_class, meta_class=meta_class, cluster_class=ConditionalCluster)


@pytest.mark.parametrize("mutant", COPY_MUTANTS)
def test_each_mutant_of_copies_is_noticed(mutant: str) -> None:
    assert_noticed(mutant, meta_class=COPY_MUTANTS[mutant], cluster_class=CopyingCluster)


@pytest.mark.parametrize("mutant", TRANSACTION_MUTANTS)
def test_each_mutant_of_transactions_is_noticed(mutant: str) -> None:
    meta_class, cluster_class = TRANSACTION_MUTANTS[mutant]
    assert_noticed(mutant, meta_class=meta_class, cluster_class=cluster_class)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_noticed(mutant: str) -> None:
    engine_class, meta_class = MUTANTS[mutant]
    assert_noticed(mutant, engine_class=engine_class, meta_class=meta_class)


@pytest.mark.parametrize("mutant", COMPACTION_MUTANTS)
def test_each_mutant_of_compaction_is_noticed(mutant: str) -> None:
    engine_class, meta_class = COMPACTION_MUTANTS[mutant]
    assert_noticed(mutant, engine_class=engine_class, meta_class=meta_class, cluster_class=CompactedCluster)
