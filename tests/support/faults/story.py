"""The faults of a run: which, for how long and after which pauses follows from the seed.

Each part that can fail has a lane, which is a thread: one per broker, one for PostgreSQL, one per broker for its
store and one for the whole store, and some that cut links. The lanes cause faults side by side, so a broker is
killed while the store fails and sessions of PostgreSQL end. New faults wait until all clients have got further since
the last few: faults of a cluster that is at a standstill would test nothing.

A fault counts if it took effect: the process was up, there was such a session, a request of the store met it, or a
cut reset or held up a connection.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg2

from .ledger import Failover
from .links import Cut, LinkGroup
from .record import Told, commit_of_tree
from .store_proxy import StoreFault, StoreMood, StoreProxy
from .world import ACKNOWLEDGED, END_S, Broker, Variant, World, summary

_STORE_FAULTS = tuple(StoreFault)
# How many faults may begin before each client has to get further, and how often that is looked at.
_FAULTS_PER_LOOK = 30
# Between two faults: without it all lanes would begin at once when they may, and kill all brokers together.
_APART_S = (0.05, 0.1, 0.2, 0.4)
_LOOK_S = 0.05
# How long that may take on a machine that has much other work.
_STANDSTILL_S = 600.0
_CUTS_AT_ONCE = 3
_PAUSES_S = (0.05, 0.2, 0.5, 1.0)
# A broker counts as dead after 5 s; its groups move after 6, and its objects are garbage after 15.
_DOWN_S = (0.0, 0.0, 0.0, 1.0, 3.0, 8.0)
_PAUSED_S = (0.5, 0.5, 1.5, 1.5, 4.0, 8.0, 25.0)
_CUT_S = (0.3, 0.3, 1.0, 1.0, 3.0, 3.0, 7.0, 18.0)
_MOOD_S = (0.3, 0.3, 1.0, 1.0, 3.0, 6.0, 12.0)
_POSTGRES_DOWN_S = (0.0, 0.0, 0.0, 0.5, 3.0)
# How far an asynchronous standby lags when its primary dies, and until then it lacks so many acknowledged records.
_LAG_S = (0.3, 1.0, 2.0)
_LACKED = 20
_BEFORE_FAILOVER_S = 5.0
_LAG_MAX_S = 10.0
# Characters of the log of each broker.
_LOG_SHOWN = 8_000
_EVENTS_SHOWN = 300
_PROMISE_SHOWN = 500
_FAULTS_PER_LINE = 50


class BrokenPromises(AssertionError):
    """A cluster has not kept its promises. ``told`` is what happened."""

    def __init__(self, text: str, told: Told) -> None:
        super().__init__(text)
        self.told = told


class Story:
    """``faults`` faults in a world, several at the same time; none begins after ``seconds``, if given."""

    def __init__(
        self,
        world: World,
        seed: int,
        faults: int,
        *,
        seconds: float | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._world = world
        self._progress_to = progress
        self._seed = seed
        self._faults = faults
        self._begun_s = time.monotonic()
        self._until_s = None if seconds is None else self._begun_s + seconds
        # Set while brokers are not ended, because they are to report what a failover loses.
        self._brokers_live = threading.Event()
        # When a broker last ended.
        self._broker_ended_s = 0.0
        # Brokers that have been told to end, and have not.
        self._ending = 0
        # Of the standby that there is: it was made so before the faults, or after the last failover.
        self._is_synchronous = False
        # So that each run has an asynchronous one.
        self._is_first_failover_due = True
        # Guards what follows.
        self._lock = threading.Lock()
        self._cut: set[str] = set()
        self._in_effect = 0
        self.events: list[str] = []
        self.counts: Counter[str] = Counter()
        # How many faults began while so many others were in effect.
        self.beside: Counter[int] = Counter()
        self.without_effect: Counter[str] = Counter()
        # Set when there were enough faults, or a promise was broken.
        self._is_over = threading.Event()
        self._gate = threading.Lock()
        self._apart = Random(f"{seed} apart")
        self._begun_since_look = 0
        self._progress = world.progress()
        self.held_up_s = 0.0
        # How often each was looked at and had not got further.
        self.waited_for: Counter[str] = Counter()

    def run(self) -> None:
        """Cause the faults; stop early if a promise was broken."""
        world = self._world
        lanes: dict[str, Callable[[Random], None]] = {}
        for number, broker in world.brokers.items():
            lanes[f"broker {number}"] = lambda random, broker=broker: self._fail_broker(broker, random)
        lanes["PostgreSQL"] = self._fail_postgres
        for number, store in world.stores.items():
            lanes[f"store of broker {number}"] = lambda random, number=number, store=store: self._fail_store(
                f"at broker {number}", [store], random
            )
        if world.stores:
            lanes["store"] = lambda random: self._fail_store(
                "at all brokers", list(world.stores.values()), random
            )
        for number in range(_CUTS_AT_ONCE):
            lanes[f"cuts {number}"] = self._cut_some
        threads = [
            threading.Thread(target=self._follow, args=(name, cause), name=name, daemon=True)
            for name, cause in lanes.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _follow(self, lane: str, cause: Callable[[Random], None]) -> None:
        """Cause the faults of a lane, one after the other."""
        random = Random(f"{self._seed} {lane}")
        try:
            while self._may_begin():
                cause(random)
                self._is_over.wait(random.choice(_PAUSES_S))
        except BaseException:  # noqa: BLE001 (for the thread that checks)
            self._world.ledger.fail(f"the lane {lane} ended: {traceback.format_exc()}")
            self._is_over.set()

    def _may_begin(self) -> bool:
        """Wait until a fault may begin; return whether there is to be one."""
        with self._gate:
            begun_s = time.monotonic()
            while self._begun_since_look >= _FAULTS_PER_LOOK and not self._is_over.is_set():
                progress = self._world.progress()
                waiting = [name for name, count in progress.items() if count <= self._progress[name]]
                if not waiting:
                    self._progress, self._begun_since_look = progress, 0
                elif time.monotonic() > begun_s + _STANDSTILL_S:
                    self._world.ledger.fail(
                        f"{', '.join(waiting)}: no progress within {_STANDSTILL_S:g} s without a new fault"
                    )
                    self._is_over.set()
                else:
                    self.waited_for.update(waiting)
                    self._is_over.wait(_LOOK_S)
            self.held_up_s += time.monotonic() - begun_s
            self._begun_since_look += 1
            self._is_over.wait(self._apart.choice(_APART_S))
        if self._world.ledger.broken or (self._until_s is not None and time.monotonic() > self._until_s):
            self._is_over.set()
        return not self._is_over.is_set()

    def _note(self, text: str) -> None:
        with self._lock:
            self.events.append(f"{time.monotonic() - self._begun_s:8.2f} s  {text}")

    def _count(self, kind: str, beside: int) -> None:
        with self._lock:
            self.counts[kind] += 1
            self.beside[beside] += 1
            if self._progress_to is not None and self.counts.total() % _FAULTS_PER_LINE == 0:
                self._progress_to(f"{self.counts.total()} faults: {dict(self.counts)}")
            if sum(self.counts.values()) >= self._faults:
                self._is_over.set()

    @contextmanager
    def _effect(self) -> Generator[int]:
        """Hold a fault in effect; yield how many others are, too."""
        with self._lock:
            beside = self._in_effect
            self._in_effect += 1
        try:
            yield beside
        finally:
            with self._lock:
                self._in_effect -= 1

    # ── brokers ──

    def _fail_broker(self, broker: Broker, random: Random) -> None:
        if not broker.process.is_running:
            # This is no fault of the test.
            self._world.ledger.fail(f"broker {broker.number} ended by itself")
            return
        (fail,) = random.choices((self._kill, self._stop, self._pause), (4, 3, 4))
        if fail != self._pause and self._brokers_live.is_set():
            return
        fail(broker, random)

    def _start(self, broker: Broker) -> None:
        """Start a broker; try again while what it needs cannot be reached."""
        self._world.start_if_reachable(broker)
        while not broker.process.is_running and not self._is_over.is_set():
            self._note(f"broker {broker.number} could not be started")
            self._broker_ended_s = time.monotonic()
            self._world.start_if_reachable(broker)
        self._note(f"broker {broker.number} is started")

    def _kill(self, broker: Broker, random: Random) -> None:
        down_s = random.choice(_DOWN_S)
        with self._effect() as beside:
            self._note(f"kill -9 of broker {broker.number}, for {down_s} s")
            broker.kill()
            self._broker_ended_s = time.monotonic()
            self._count("kill -9", beside)
            self._is_over.wait(down_s)
            self._start(broker)

    def _stop(self, broker: Broker, random: Random) -> None:
        down_s = random.choice(_DOWN_S)
        with self._effect() as beside:
            self._note(f"SIGTERM to broker {broker.number}, for {down_s} s")
            with self._lock:
                self._ending += 1
            broker.stop()
            self._count("SIGTERM", beside)
            self._is_over.wait(down_s)
            broker.await_end(END_S)
            with self._lock:
                self._ending -= 1
                self._broker_ended_s = time.monotonic()
            self._start(broker)

    def _pause(self, broker: Broker, random: Random) -> None:
        paused_s = random.choice(_PAUSED_S)
        with self._effect() as beside:
            self._note(f"SIGSTOP to broker {broker.number}, for {paused_s} s")
            broker.pause()
            self._count("SIGSTOP", beside)
            self._is_over.wait(paused_s)
            self._note(f"SIGCONT to broker {broker.number}")
            broker.resume()

    # ── PostgreSQL ──

    def _fail_postgres(self, random: Random) -> None:
        lanes = [(self._end_backends, 4), (self._restart_postgres, 2)]
        if self._world.postgres.has_standby:
            if self._is_first_failover_due:
                self._is_first_failover_due = False
                self._is_over.wait(_BEFORE_FAILOVER_S)
                self._fail_over(random)
                return
            lanes.append((self._fail_over, 2))
        (fail,) = random.choices([cause for cause, _ in lanes], [weight for _, weight in lanes])
        fail(random)

    def _end_backends(self, random: Random) -> None:
        share = random.choice((0.1, 0.5, 1.0))
        with self._effect() as beside:
            try:
                count = self._world.end_backends(share)
            except psycopg2.Error as error:
                self._world.ledger.fail(f"PostgreSQL does not serve the test itself: {error}")
                return
            self._note(f"pg_terminate_backend of {count} sessions")
            if count:
                self._count("pg_terminate_backend", beside)
            else:
                self.without_effect["pg_terminate_backend"] += 1

    def _restart_postgres(self, random: Random) -> None:
        """As ``pg_ctl restart -m immediate`` does: recovery as after a crash."""
        down_s = random.choice(_POSTGRES_DOWN_S)
        with self._effect() as beside:
            self._note(f"PostgreSQL stops at once, for {down_s} s")
            self._world.postgres.stop_immediately()
            self._count("pg_ctl restart -m immediate", beside)
            self._is_over.wait(down_s)
            self._world.postgres.start()
            self._note("PostgreSQL is started")

    def _fail_over(self, random: Random) -> None:
        """Kill the primary and promote its standby, then make the former primary the standby."""
        database, ledger = self._world.postgres, self._world.ledger
        is_asynchronous, brokers_live = not self._is_synchronous, random.random() < 0.7
        kind = "asynchronous" if is_asynchronous else "synchronous"
        if brokers_live:
            self._brokers_live.set()
        with self._effect() as beside:
            if is_asynchronous:
                ledger.begin_asynchronous_failover()
                database.await_standby()
            # A broker that ended just before may have acknowledged what the standby does not have yet.
            since_s = time.monotonic() - 1
            if is_asynchronous:
                self._let_lag(random)
            else:
                self._is_over.wait(random.choice(_LAG_S))
            before, logs = database.history, self._world.logs_now()
            self._note(f"{kind} failover: the primary is killed")
            database.kill_primary()
            with ledger.lock:
                ledger.era += 1
            self._is_over.wait(random.choice(_POSTGRES_DOWN_S))
            ends = database.promote()
            self._note("the standby is promoted")
            epoch = database.await_history(before)
            self._world.await_adoption(epoch, logs)
            with self._lock:
                # A broker that is told to end acknowledges what it has in hand, and may be the only one to know of it.
                all_lived = not self._ending and self._broker_ended_s < since_s
            self._brokers_live.clear()
            ledger.end_failover(
                Failover(
                    number=ledger.era,
                    is_asynchronous=is_asynchronous,
                    ends=ends,
                    epoch=epoch,
                    all_lived=all_lived,
                )
            )
            self._note(f"all brokers have taken over history {epoch}")
            self._count(f"{kind} failover", beside)
            database.rebuild()
            self._is_synchronous = random.random() < 0.5
            if self._is_synchronous:
                database.wait_for_standby()
            self._note(f"the former primary is the standby, {self._is_synchronous=}")

    def _let_lag(self, random: Random) -> None:
        """Cut the standby off, until it lacks some records."""
        database, ledger = self._world.postgres, self._world.ledger

        def acknowledged() -> int:
            with ledger.lock:
                return sum(ledger.counts[name] for name in ACKNOWLEDGED)

        how, lag_s = random.choice((Cut.RESET, Cut.STALL)), random.choice(_LAG_S)
        enough, begun_s = acknowledged() + _LACKED, time.monotonic()
        self._note(f"the standby is cut off, {how.value}, for {lag_s} s at least")
        database.cut_off(how)
        while not self._is_over.wait(_LOOK_S):
            past_s = time.monotonic() - begun_s
            if past_s > _LAG_MAX_S or (past_s > lag_s and acknowledged() >= enough):
                return

    # ── the store ──

    def _fail_store(self, where: str, stores: Sequence[StoreProxy], random: Random) -> None:
        mood = StoreMood(
            faults=tuple(random.sample(_STORE_FAULTS, random.choice((1, 1, 2, 4)))),
            probability=random.choice((0.2, 0.5, 1.0)),
            delay_s=random.choice((0.1, 0.5, 1.5)),
        )
        seconds = random.choice(_MOOD_S)
        names = ", ".join(fault.name for fault in mood.faults)
        is_outage = len(stores) > 1
        before = sum(store.failed.total() for store in stores)
        with self._effect() as beside:
            self._note(f"store {where}: {names} with {mood.probability}, for {seconds} s")
            self._set_mood(stores, mood, is_outage=is_outage)
            self._is_over.wait(seconds)
            self._set_mood(stores, StoreMood(), is_outage=is_outage)
        failed = sum(store.failed.total() for store in stores) - before
        self._note(f"store {where}: {failed} requests failed")
        if failed:
            self._count("store", beside)
        else:
            self.without_effect["store"] += 1

    @staticmethod
    def _set_mood(stores: Sequence[StoreProxy], mood: StoreMood, *, is_outage: bool) -> None:
        for store in stores:
            if is_outage:
                store.outage = mood
            else:
                store.mood = mood

    # ── links ──

    def _cut_some(self, random: Random) -> None:
        """Cut all links between two parts."""
        pair = self._whole_pair(random)
        how, seconds = random.choice(tuple(Cut)), random.choice(_CUT_S)
        before = pair.hits
        with self._effect() as beside:
            self._note(f"cut {pair.name}, {how.value}, for {seconds} s")
            pair.cut(how)
            self._is_over.wait(seconds)
            pair.mend()
        with self._lock:
            self._cut.remove(pair.name)
        hits = pair.hits - before
        self._note(f"mend {pair.name}: {hits} connections or transfers were hit")
        if hits:
            self._count(f"cut, {how.value}", beside)
        else:
            self.without_effect["cut"] += 1

    def _whole_pair(self, random: Random) -> LinkGroup:
        """Choose a pair that no other lane has cut."""
        with self._lock:
            pair = random.choice([pair for pair in self._world.pairs if pair.name not in self._cut])
            self._cut.add(pair.name)
        return pair


def tell(
    path: Path,
    variant: Variant,
    *,
    seed: int,
    faults: int,
    fails_over: bool = False,
    seconds: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Told:
    """Run a story and check all promises. With ``fails_over`` the database has a standby.

    No fault begins after ``seconds``. ``progress`` is called now and then.

    Raises:
        BrokenPromises: the text has the seed and the events.
    """
    begun_s = time.monotonic()
    with World(path, variant, Random(seed), fails_over=fails_over) as world:
        story = Story(world, seed, faults, seconds=seconds, progress=progress)
        world.start_clients(seed)
        started_s = time.monotonic()
        try:
            story.run()
        finally:
            world.heal()
        story_s = time.monotonic() - started_s
        world.end_clients()
        if not world.ledger.broken:
            world.check()
        for name in ACKNOWLEDGED:
            if not world.ledger.counts[name]:
                world.ledger.fail(f"nothing was acknowledged by {name}")
        told = Told(
            version=commit_of_tree(),
            variant=variant,
            seed=seed,
            faults=story.counts.total(),
            counts=dict(story.counts),
            beside=dict(sorted(story.beside.items())),
            failed_requests=sum(store.failed.total() for store in world.stores.values()),
            acknowledged={name: world.ledger.counts[name] for name in ACKNOWLEDGED},
            lost=world.ledger.counted_losses(),
            broken=[text[:_PROMISE_SHOWN] for text in world.ledger.broken[:20]],
            story_s=round(story_s),
            seconds=round(time.monotonic() - begun_s),
        )
        print(
            f"{told}\n  without effect: {dict(story.without_effect)}; held up for {story.held_up_s:.0f} s,"
            f" by {dict(story.waited_for.most_common(4))}"
        )
        print(summary(world.ledger), flush=True)
        if world.ledger.broken:
            log = "\n".join(
                f"── broker {broker.number}\n{broker.process.stderr[-_LOG_SHOWN:]}"
                for broker in world.brokers.values()
            )
            events = "\n".join(story.events[-_EVENTS_SHOWN:])
            promises = "\n".join(world.ledger.broken[:20])
            raise BrokenPromises(
                f"seed {seed}, {variant}, {faults} faults (STELE_FAULTS_SEED={seed} repeats the faults):\n"
                f"{promises}\n{events}\n{log}",
                told,
            )
        return told


def seed_of_run() -> int:
    """The seed that STELE_FAULTS_SEED names, or a new one."""
    given = os.environ.get("STELE_FAULTS_SEED")
    return int(given) if given else Random().randrange(2**32)
