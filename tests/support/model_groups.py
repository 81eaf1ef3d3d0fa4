"""Brokers, leases and groups of a cluster as dictionaries: what their tables in PostgreSQL must be equal to.

Every call is atomic, as a transaction is. Each broker has an access of its own, whose calls fail as the ``faults`` of
the broker say: without an effect, or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NoReturn, TypeVar
from uuid import UUID

from app.clock import Clock
from app.cluster.group_shards import lease_of_shard
from app.cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    GroupRecord,
    OffsetRecord,
    OwnerRecord,
    StoreChange,
    StoredGroups,
)
from app.cluster.membership import ClusterState, Displaced, Lease, Member
from app.cluster.transaction_store import StoredAnswer, StoredTransactions
from app.errors import CoordinatorFenced, CoordinatorNotAvailable, StorageUnavailable

_T = TypeVar("_T")


@dataclass(slots=True)
class _Broker:
    member: Member
    seen_ms: int


@dataclass(slots=True)
class _LeaseRow:
    member: Member
    epoch: int
    expires_ms: int


@dataclass(slots=True)
class Faults:
    """How probable it is that a call of a broker fails: half of the time after its effect."""

    random: Random
    probability: float = 0.0

    def around(self, work: Callable[[], _T], fail: Callable[[], NoReturn]) -> _T:
        is_failing = self.probability > 0 and self.random.random() < self.probability
        if is_failing and self.random.random() < 0.5:
            fail()
        result = work()
        if is_failing:
            fail()
        return result


@dataclass(slots=True)
class ModelDatabase:
    """What all brokers share. Times are of its own clock.

    ``violations``: what a broker did that it must never do; an error would only be told to the broker.
    """

    clock: Clock
    brokers: dict[int, _Broker] = field(default_factory=dict[int, _Broker])
    leases: dict[str, _LeaseRow] = field(default_factory=dict[str, _LeaseRow])
    groups: dict[str, GroupRecord] = field(default_factory=dict[str, GroupRecord])
    owners: dict[tuple[str, str, int], OwnerRecord] = field(
        default_factory=dict[tuple[str, str, int], OwnerRecord]
    )
    offsets: dict[tuple[str, str, int], OffsetRecord] = field(
        default_factory=dict[tuple[str, str, int], OffsetRecord]
    )
    # By shard: the holder of its lease that wrote last, and the epoch.
    writers: dict[int, tuple[int, UUID]] = field(default_factory=dict[int, tuple[int, UUID]])
    violations: list[str] = field(default_factory=list[str])

    def is_alive(self, member: Member) -> bool:
        known = self.brokers.get(member.broker_id)
        return (
            known is not None
            and known.member.incarnation == member.incarnation
            and known.seen_ms > self.clock.now_ms() - known.member.session_timeout_ms
        )

    def is_free(self, row: _LeaseRow) -> bool:
        return row.expires_ms <= self.clock.now_ms() or not self.is_alive(row.member)


class ModelMembership:
    """Implements ``Membership`` for one broker."""

    def __init__(self, database: ModelDatabase, faults: Faults) -> None:
        self.database = database
        self._faults = faults

    def _run(self, what: str, work: Callable[[], _T]) -> _T:
        def fail() -> NoReturn:
            raise StorageUnavailable(what, "a fault of the simulation")

        return self._faults.around(work, fail)

    def register(self, member: Member, *, previous: UUID | None = None) -> bool:
        def work() -> bool:
            now_ms, known = self.database.clock.now_ms(), self.database.brokers.get(member.broker_id)
            is_other = known is not None and known.member.incarnation not in (member.incarnation, previous)
            if known is not None and is_other and known.seen_ms > now_ms - known.member.session_timeout_ms:
                return False
            registered = replace(member, started_at_ms=now_ms)
            self.database.brokers[member.broker_id] = _Broker(registered, now_ms)
            return True

        return self._run("the registration of the broker", work)

    def heartbeat(self, member: Member, report: str | None = None) -> None:
        def work() -> bool:
            now_ms, known = self.database.clock.now_ms(), self.database.brokers.get(member.broker_id)
            if known is None or known.member.incarnation != member.incarnation:
                return False
            if known.seen_ms <= now_ms - known.member.session_timeout_ms:
                known.member = replace(known.member, started_at_ms=now_ms)
            known.seen_ms = now_ms
            return True

        if not self._run("a heartbeat", work) and not self.register(member):
            raise Displaced(str(member.broker_id))

    def look(self) -> ClusterState:
        def work() -> ClusterState:
            database, now_ms = self.database, self.database.clock.now_ms()
            members = [known.member for _, known in sorted(database.brokers.items())]
            return ClusterState(
                members=tuple(member for member in members if database.is_alive(member)),
                leases={
                    name: Lease(
                        broker_id=row.member.broker_id,
                        incarnation=row.member.incarnation,
                        epoch=row.epoch,
                        expires_in_ms=row.expires_ms - now_ms,
                    )
                    for name, row in database.leases.items()
                    if not database.is_free(row)
                },
            )

        return self._run("looking at the cluster", work)

    def leave(self, member: Member) -> None:
        def work() -> None:
            for name in self._of(member, self.database.leases):
                self.database.leases[name].expires_ms = self.database.clock.now_ms()
            known = self.database.brokers.get(member.broker_id)
            if known is not None and known.member.incarnation == member.incarnation:
                del self.database.brokers[member.broker_id]

        self._run("leaving the cluster", work)

    def acquire(self, name: str, member: Member) -> int | None:
        def work() -> int | None:
            expires_ms, row = self.database.clock.now_ms() + member.lease_ms, self.database.leases.get(name)
            if row is None:
                self.database.leases[name] = _LeaseRow(member, 1, expires_ms)
                return 1
            is_own = row.member.incarnation == member.incarnation
            if not is_own and not self.database.is_free(row):
                return None
            row.member, row.expires_ms = member, expires_ms
            row.epoch += not is_own
            return row.epoch

        return self._run(f"taking the lease {name}", work)

    def renew(self, names: Sequence[str], member: Member) -> Mapping[str, int]:
        def work() -> dict[str, int]:
            own = self._of(member, names)
            for name in own:
                self.database.leases[name].expires_ms = self.database.clock.now_ms() + member.lease_ms
            return {name: self.database.leases[name].epoch for name in own}

        return self._run("renewing leases", work)

    def release(self, name: str, member: Member) -> None:
        def work() -> None:
            for own in self._of(member, (name,)):
                self.database.leases[own].expires_ms = self.database.clock.now_ms()

        self._run(f"giving back the lease {name}", work)

    def _of(self, member: Member, names: Sequence[str] | Mapping[str, _LeaseRow]) -> list[str]:
        rows = self.database.leases
        return [
            name for name in names if name in rows and rows[name].member.incarnation == member.incarnation
        ]

    def close(self) -> None: ...


class ModelGroupStore:
    """Implements ``GroupStore`` for the holder of the lease on a shard; ``shard_of`` tells that of a group."""

    def __init__(
        self,
        database: ModelDatabase,
        faults: Faults,
        *,
        shard: int,
        incarnation: UUID,
        shard_of: Callable[[str], int],
    ) -> None:
        self._database = database
        self._faults = faults
        self._shard = shard
        self._lease = lease_of_shard(shard)
        self._incarnation = incarnation
        self._shard_of = shard_of
        self._epoch = 0

    def take(self, epoch: int) -> None:
        self._epoch = epoch

    def check_fence(self) -> None:
        """Raises ``CoordinatorFenced``."""
        row = self._database.leases.get(self._lease)
        if row is None or (row.epoch, row.member.incarnation) != (self._epoch, self._incarnation):
            raise CoordinatorFenced(epoch=self._epoch, current_epoch=0 if row is None else row.epoch)

    def _run(self, work: Callable[[], _T]) -> _T:
        def fenced() -> _T:
            self.check_fence()
            return work()

        def fail() -> NoReturn:
            raise CoordinatorNotAvailable("a fault of the simulation")

        return self._faults.around(fenced, fail)

    def open(self) -> StoredGroups:
        def work() -> StoredGroups:
            def is_own(group: str) -> bool:
                return self._shard_of(group) == self._shard

            owners = [owner for _, owner in sorted(self._database.owners.items()) if is_own(owner.group)]
            return StoredGroups(
                epoch=self._epoch,
                groups=[
                    replace(record, owners=tuple(owner for owner in owners if owner.group == name))
                    for name, record in sorted(self._database.groups.items())
                    if is_own(name)
                ],
                offsets=[
                    offset for _, offset in sorted(self._database.offsets.items()) if is_own(offset.group)
                ],
            )

        return self._run(work)

    def write(self, changes: Sequence[StoreChange]) -> None:
        def work() -> None:
            self._check_writer()
            for change in changes:
                self._apply(change)

        self._run(work)

    def _check_writer(self) -> None:
        """One broker writes with an epoch, and nobody with an earlier one after it. (13)"""
        writer = self._epoch, self._incarnation
        last = self._database.writers.get(self._shard, writer)
        if writer[0] < last[0] or (writer[0] == last[0] and writer[1] != last[1]):
            self._database.violations.append(f"{writer} writes to shard {self._shard} after {last}")
        self._database.writers[self._shard] = writer

    def _apply(self, change: StoreChange) -> None:
        database = self._database
        match change:
            case GroupRecord():
                self._drop_group(change.group)
                database.groups[change.group] = replace(change, owners=())
                for owner in change.owners:
                    self._apply(owner)
            case OwnerRecord():
                database.owners[change.group, change.topic, change.partition] = change
            case OffsetRecord():
                database.offsets[change.group, change.topic, change.partition] = change
            case DeleteOwner():
                database.owners.pop((change.group, change.topic, change.partition), None)
            case DeleteOffset():
                database.offsets.pop((change.group, change.topic, change.partition), None)
            case DeleteGroup():
                self._drop_group(change.group)
                for key in [key for key in database.offsets if key[0] == change.group]:
                    del database.offsets[key]
            case _:
                # Raised, it would be one more fault to the broker.
                database.violations.append(f"the model knows no {type(change).__name__}")

    def _drop_group(self, group: str) -> None:
        self._database.groups.pop(group, None)
        for key in [key for key in self._database.owners if key[0] == group]:
            del self._database.owners[key]

    def transactions(self) -> StoredTransactions:
        raise NotImplementedError("no client of the simulation has transactions")

    def answer_ages(self) -> Sequence[tuple[str, int]]:
        raise NotImplementedError("no client of the simulation has transactions")

    def answer(self, key: str) -> StoredAnswer | None:
        raise NotImplementedError("no client of the simulation has transactions")

    def close(self) -> None: ...
