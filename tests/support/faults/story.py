"""The faults of a run: which, in which order and for how long follows from the seed."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import psycopg2

from .links import Cut
from .store_proxy import StoreFault, StoreMood
from .world import BROKERS, Variant, World, summary

_STORE_FAULTS = tuple(StoreFault)


class Story:
    """``faults`` faults in a world, some of which overlap."""

    def __init__(self, world: World, random: Random, faults: int) -> None:
        self._world = world
        self._random = random
        self._faults = faults
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        # What will happen later: at which fault, and what.
        self._later: list[tuple[int, str, Callable[[], None]]] = []
        self.events: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Cause the faults one after the other; stop early if a promise was broken."""
        random = self._random
        kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (2, self._stop),
            (4, self._pause),
            (4, self._end_backends),
            (2, self._restart_postgres),
            (6 if self._world.stores else 0, self._store_mood),
            (8, self._cut),
        ]
        weights = [weight for weight, _ in kinds]
        number = 0
        while number < self._faults:
            self._do_what_is_due(number)
            (fault,) = random.choices([kind for _, kind in kinds], weights)
            self._number = number
            fault()
            number += 1
            time.sleep(random.choice((0.05, 0.2, 0.5, 1.0)))
            if self._world.ledger.broken:
                break
        for _, _, do in sorted(self._later, key=lambda later: later[0]):
            do()

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self.events.append(f"{self._number:5d} {time.monotonic() - self._begun_s:8.2f} s  {kind}: {text}")

    def _do_what_is_due(self, number: int) -> None:
        due = [later for later in self._later if later[0] <= number]
        self._later = [later for later in self._later if later[0] > number]
        for _, text, do in due:
            self.events.append(f"{number:5d} {time.monotonic() - self._begun_s:8.2f} s    {text}")
            do()

    def _afterwards(self, faults: int, text: str, do: Callable[[], None]) -> None:
        """Do something when ``faults`` more faults have happened."""
        self._later.append((self._number + faults, text, do))

    # ── faults ──

    def _kill(self) -> None:
        broker = self._world.brokers[self._random.choice(BROKERS)]
        delay = self._random.choice((0, 0, 1, 3))
        self._note("kill -9", f"broker {broker.number}, started again {delay} faults later")
        broker.kill()
        self._afterwards(
            delay, f"start broker {broker.number}", lambda: self._world.start_if_reachable(broker)
        )

    def _stop(self) -> None:
        broker = self._world.brokers[self._random.choice(BROKERS)]
        if broker.is_paused or broker.is_stopping or not broker.process.is_running:
            self._kill()
            return
        self._note("SIGTERM", f"broker {broker.number}")
        broker.stop()
        self._afterwards(1, f"start broker {broker.number}", lambda: self._world.start_if_reachable(broker))

    def _pause(self) -> None:
        broker = self._world.brokers[self._random.choice(BROKERS)]
        faults = self._random.choice((1, 1, 3, 8, 20))
        self._note("SIGSTOP", f"broker {broker.number} for {faults} faults")
        broker.pause()
        self._afterwards(faults, f"SIGCONT broker {broker.number}", broker.resume)

    def _end_backends(self) -> None:
        share = self._random.choice((0.1, 0.5, 1.0))
        try:
            count = self._world.end_backends(share)
        except psycopg2.Error as error:
            self._world.ledger.fail(f"PostgreSQL does not serve the test itself: {error}")
            return
        self._note("pg_terminate_backend", f"{count} sessions")

    def _restart_postgres(self) -> None:
        self._note("pg_ctl restart -m immediate", "")
        self._world.restart_postgres()

    def _store_mood(self) -> None:
        random = self._random
        mood = StoreMood(
            faults=tuple(random.sample(_STORE_FAULTS, random.choice((1, 1, 2, 4)))),
            probability=random.choice((0.2, 0.5, 1.0)),
            delay_s=random.choice((0.1, 0.5, 1.5)),
        )
        numbers = random.choice(((1,), (2,), (3,), BROKERS))
        faults = random.choice((1, 1, 2, 4))
        names = ", ".join(fault.name for fault in mood.faults)
        self._note("store", f"{names} with {mood.probability} at brokers {numbers} for {faults} faults")
        for number in numbers:
            self._world.stores[number].mood = mood

        def end() -> None:
            for number in numbers:
                self._world.stores[number].mood = StoreMood()

        self._afterwards(faults, "the store works again", end)

    def _cut(self) -> None:
        pair = self._random.choice(self._world.pairs)
        how = self._random.choice(tuple(Cut))
        faults = self._random.choice((1, 1, 2, 5, 10))
        self._note("cut", f"{pair.name}, {how.value}, for {faults} faults")
        pair.cut(how)
        self._afterwards(faults, f"mend {pair.name}", pair.mend)


def tell(path: Path, variant: Variant, *, seed: int, faults: int) -> Counter[str]:
    """Run a story and check all promises; raises ``AssertionError`` with the seed and the events."""
    random = Random(seed)
    with World(path, variant, random) as world:
        story = Story(world, random, faults)
        world.start_clients(seed)
        try:
            story.run()
        finally:
            world.heal()
        world.end_clients()
        if not world.ledger.broken:
            world.check()
        print(f"seed {seed}, {variant}: {sum(story.counts.values())} faults, {dict(story.counts)}")
        print(summary(world.ledger))
        if world.ledger.broken:
            log = "\n".join(
                f"── broker {broker.number}\n{broker.process.stderr}" for broker in world.brokers.values()
            )
            events = "\n".join(story.events[-200:])
            promises = "\n".join(world.ledger.broken[:20])
            raise AssertionError(
                f"seed {seed}, {variant}, {faults} faults (STELE_FAULTS_SEED={seed} repeats the faults):\n"
                f"{promises}\n{events}\n{log}"
            )
        for name in ("kafka", "http", "binary", "plain"):
            assert world.ledger.counts[name] > 0, f"nothing was acknowledged by {name}"
        return story.counts


def seed_of_run() -> int:
    """The seed that STELE_FAULTS_SEED names, or a new one."""
    given = os.environ.get("STELE_FAULTS_SEED")
    return int(given) if given else Random().randrange(2**32)
