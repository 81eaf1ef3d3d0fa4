"""Any history of members that join, sync, stay, leave, commit and vanish, of crashes and of time passing."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from app.cluster.group_store import MemberProtocol, StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import (
    GroupError,
    GroupStoreFailed,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from app.groups.base.messages import NO_MEMBER, Joined, Results, Synced
from app.groups.base.states import GroupState
from tests.support.groups import GroupBench
from tests.support.simulated_time import SimulatedLoop

_T = TypeVar("_T")
SESSION_MS, REBALANCE_MS = 6_000, 20_000
PROTOCOLS = st.sampled_from(
    [
        (MemberProtocol("range", b"a"),),
        (MemberProtocol("range", b"b"),),
        (MemberProtocol("sticky", b"a"), MemberProtocol("range", b"a")),
        (MemberProtocol("range", b"a"), MemberProtocol("sticky", b"a")),
    ]
)
INSTANCES = (None, None, None, "i", "k")
CLIENTS = st.integers(0, len(INSTANCES) - 1)
BEHAVED = (MemberProtocol("range", b"a"),)
# Nobody may wait longer: new members' 5 minutes, or a rebalance behind a rebalance.
PATIENCE_S = 400.0


class _Mishaps(logging.Handler):
    def __init__(self, mishaps: list[object]) -> None:
        super().__init__()
        self._mishaps = mishaps

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._mishaps.append(record.exc_info[1])


class MortalStore(SqliteGroupStore):
    is_dead = False

    def write(self, changes: Sequence[StoreChange]) -> None:
        if self.is_dead:
            raise GroupStoreFailed(Path("groups.sqlite"), "the process is dead")
        super().write(changes)


class GroupHistories(RuleBasedStateMachine):
    """Clients know the member id and the generation of their last response."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="stele-groups-"))
        self.loop = SimulatedLoop(Random(0))
        self.bench = GroupBench(self.path, group_size_max=5)
        self.bench.clock._loop = self.loop
        # What goes wrong in a callback reaches nobody otherwise.
        self.mishaps: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.mishaps.append(context))
        self.log = _Mishaps(self.mishaps)
        logging.getLogger("app.groups").addHandler(self.log)
        self.ids: dict[int, str] = {}
        self.lives = [0] * len(INSTANCES)
        self.joining: dict[int, asyncio.Future[Joined]] = {}
        self.generations: dict[int, int] = {}

        self.parked: list[tuple[float, asyncio.Future[Joined] | asyncio.Future[Synced]]] = []
        self.commits: list[tuple[int, asyncio.Future[Results]]] = []
        self.next_offset = 1
        # Highest generation seen by this coordinator, and the highest that a crash may not take back.
        self.highest = 0
        self.stored = 0
        self.acked = 0

    def on_loop(self, work: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return work()

        return self.loop.run_until_complete(run())

    def let_pass(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = MortalStore(self.path / "groups.sqlite")
        self.loop.run_until_complete(self.bench.open(self.store))

    @rule(client=CLIENTS, protocols=PROTOCOLS, knows_id=st.booleans(), skips=st.booleans())
    def join(self, client: int, protocols: tuple[MemberProtocol, ...], knows_id: bool, skips: bool) -> None:
        def work() -> None:
            try:
                future = self.bench.join(
                    self.ids.get(client, NO_MEMBER),
                    instance_id=INSTANCES[client],
                    protocols=protocols,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    requires_known_member_id=knows_id,
                    supports_skip_assignment=skips,
                )
            except MemberIdRequired as error:
                self.ids[client] = error.member_id
            except GroupError:
                self.ids.pop(client, None)
                self.generations.pop(client, None)
            else:
                self.parked.append((self.loop.time(), future))
                self.joining[client] = future
                life = self.lives[client]
                future.add_done_callback(lambda done: self.joined(client, life, done))

        self.on_loop(work)

    def joined(self, client: int, life: int, future: asyncio.Future[Joined]) -> None:
        is_last = self.joining.get(client) is future
        if is_last:
            del self.joining[client]
        if future.exception() is not None:
            if is_last and life == self.lives[client]:
                self.forget(client)
            return
        joined = future.result()
        assert joined.generation >= self.highest
        self.highest = joined.generation
        if life == self.lives[client]:
            self.ids[client] = joined.member_id
            self.generations[client] = joined.generation
        if joined.members:
            members = {member.member_id for member in joined.members}
            assert joined.leader == joined.member_id
            assert joined.member_id in members
            assert len(members) == len(joined.members)

    @rule(client=CLIENTS)
    def sync(self, client: int) -> None:
        def work() -> None:
            member_id, generation = self.ids.get(client, ""), self.generations.get(client, -1)
            try:
                group = self.bench.coordinator.describe("g")
                assignments = {m.member_id: f"{m.member_id}@{generation}".encode() for m in group.members}
                future = self.bench.sync(member_id, generation, assignments, instance_id=INSTANCES[client])
            except GroupError:
                return
            self.parked.append((self.loop.time(), future))

            def synced(done: asyncio.Future[Synced]) -> None:
                if done.exception() is None:
                    self.stored = max(self.stored, generation)
                    # Its own, of its own generation, whatever its member id is now; or nothing.
                    assignment = done.result().assignment
                    assert not assignment or assignment.endswith(f"@{generation}".encode())

            future.add_done_callback(synced)

        self.on_loop(work)

    @rule(client=CLIENTS)
    def heartbeat(self, client: int) -> None:
        member_id, generation = self.ids.get(client, ""), self.generations.get(client, -1)
        try:
            self.on_loop(lambda: self.bench.heartbeat(member_id, generation, instance_id=INSTANCES[client]))
        except RebalanceInProgress:
            assert self.bench.state() is GroupState.PREPARING_REBALANCE
        except GroupError:
            self.generations.pop(client, None)
        else:
            assert self.bench.coordinator.describe("g").generation == generation

    @rule(client=CLIENTS)
    def leave(self, client: int) -> None:
        member_id = self.ids.get(client, "")
        (error,) = self.on_loop(lambda: self.bench.leave(member_id))
        assert error is None or isinstance(error, UnknownMember)

        self.forget(client)

    @rule(client=CLIENTS)
    def vanish(self, client: int) -> None:
        """Replace the process of a member without leaving the group."""
        self.forget(client)

    def forget(self, client: int) -> None:
        self.ids.pop(client, None)
        self.generations.pop(client, None)
        self.lives[client] += 1

    @rule(clients=st.sets(CLIENTS, min_size=1), rounds=st.integers(1, 6))
    def behave(self, clients: set[int], rounds: int) -> None:
        """``clients`` do for some seconds what clients do."""
        for _ in range(rounds):
            for client in sorted(clients):
                state = self.state_of(client)
                if state is None or state is GroupState.PREPARING_REBALANCE:
                    if client not in self.joining:
                        self.join(client, BEHAVED, True, True)
                elif state is GroupState.COMPLETING_REBALANCE:
                    self.sync(client)
                else:
                    self.heartbeat(client)
                    self.commit(client, False)
            self.let_pass(0.5)

    def state_of(self, client: int) -> GroupState | None:
        """Of its group; None if it is no member of the generation that it knows of."""
        live = self.bench.coordinator.table.groups.get("g")
        if live is None or self.ids.get(client) not in live.group.members:
            return None
        return live.group.state if self.generations.get(client) == live.group.generation else None

    @rule(client=CLIENTS, old=st.booleans())
    def commit(self, client: int, old: bool) -> None:
        member_id, generation = self.ids.get(client, ""), self.generations.get(client, -1) - old
        live = self.bench.coordinator.table.groups.get("g")
        is_member = live is not None and member_id in live.group.members
        is_current = live is not None and generation == live.group.generation
        is_simple = generation < 0 and (live is None or live.group.state is GroupState.EMPTY)
        offset, self.next_offset = self.next_offset, self.next_offset + 1

        def work() -> asyncio.Future[Results]:
            return self.bench.commit(
                offset, generation=generation, member_id=member_id, instance_id=INSTANCES[client]
            )

        try:
            future = self.on_loop(work)
        except IllegalGeneration:
            assert not is_current
        except GroupError:
            return
        else:
            # Nobody of an old generation, and nobody who is no member, commits.
            assert (is_member and is_current) or is_simple
            self.commits.append((offset, future))

    @rule(seconds=st.sampled_from([0.01, 0.5, 3.0, 5.0, 7.0, 21.0]))
    def pass_time(self, seconds: float) -> None:
        self.let_pass(seconds)

    @rule()
    def crash(self) -> None:
        """Crash the coordinator: acknowledged changes must survive, and pending ones may."""
        # A dead process writes nothing, and nobody hears its answers.
        self.store.is_dead = True
        self.loop.run_until_complete(self.bench.close())
        self.parked.clear()
        self.joining.clear()
        self.collect()
        self.highest = self.stored
        self.open()

    @rule()
    def sweep(self) -> None:
        self.loop.run_until_complete(self.bench.coordinator.sweep())
        if "g" not in self.bench.coordinator.table.groups:
            # Nothing was left in it; the next one of that name counts from the start.
            self.highest = self.stored = 0

    # ── what always holds ──

    @invariant()
    def the_group_is_sound(self) -> None:
        for live in (
            self.bench.coordinator.table.groups.values() if hasattr(self.bench, "coordinator") else ()
        ):
            live.group.check()
            assert live.members.parking.member_ids == {
                m.member_id for m in live.group.members.values() if m.is_awaiting_join or m.is_awaiting_sync
            }
            sessions = live.members.sessions
            assert sessions.member_ids == {*live.group.members, *live.group.pending}
            assert len(live.group.members) <= 5
            for member_id in sessions.member_ids:
                member = live.group.members.get(member_id)
                # Who has no running session is parked: all others expire eventually.
                assert sessions.is_running(member_id) or (
                    member is not None and (member.is_awaiting_join or member.is_awaiting_sync)
                )
            if live.group.state is GroupState.PREPARING_REBALANCE:
                assert live.rebalance.join_timer.is_running

    @invariant()
    def nothing_goes_wrong_unseen(self) -> None:
        assert not self.mishaps

    @invariant()
    def who_waits_is_answered_in_time(self) -> None:
        self.parked = [(since, future) for since, future in self.parked if not future.done()]
        for since, _ in self.parked:
            assert self.loop.time() - since < PATIENCE_S

    @invariant()
    def what_was_committed_last_is_what_is_read(self) -> None:
        if hasattr(self.bench, "coordinator"):
            self.collect()
            if self.acked:
                assert self.on_loop(self.bench.committed) == self.acked

    def collect(self) -> None:
        """Commits are answered in their order."""
        waiting: list[tuple[int, asyncio.Future[Results]]] = []
        for offset, future in self.commits:
            if not future.done():
                waiting.append((offset, future))
                continue
            assert not waiting
            if self.store.is_dead and future.exception() is not None:
                continue
            assert future.result() == [None]
            assert offset > self.acked
            self.acked = offset
        self.commits = waiting

    def teardown(self) -> None:
        try:
            if hasattr(self.bench, "coordinator"):
                self.let_pass(PATIENCE_S)
                assert all(future.done() for _, future in self.parked), "somebody waits for ever"
                # All members have gone, and the group knows it.
                listed = self.loop.run_until_complete(self.bench.coordinator.list_groups())
                assert all(one.state is GroupState.EMPTY for one in listed), listed
                self.loop.run_until_complete(self.bench.close())
                assert not self.mishaps
        finally:
            logging.getLogger("app.groups").removeHandler(self.log)
            self.loop.close()
            shutil.rmtree(self.path)


_IS_TORTURE = bool(os.environ.get("STELE_TORTURE"))
GroupHistories.TestCase.settings = settings(
    max_examples=5_000 if _IS_TORTURE else 30,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGroupHistories = GroupHistories.TestCase
