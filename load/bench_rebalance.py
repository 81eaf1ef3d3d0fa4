"""Measure groups that the broker assigns (KIP-848) beside Apache Kafka: time to stable, and CPU time of the broker.

Each member is a consumer of librdkafka. The group is stable when its members have all partitions, each an even share.
Both brokers have their default intervals, so a rebalance takes some heartbeats of 5 s on both.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from confluent_kafka import Consumer

from .harness import Benchmark, Rounds
from .kafka_clients import CLIENT, TIMEOUT_S, make_topic
from .results import at_most
from .subjects import Subject, stele_and_kafka

_LOOK_S = 0.01
_names = (f"rebalanced-{number}" for number in count(1))


class Group:
    """Consumers of all partitions of a topic."""

    def __init__(self, subject: Subject, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self._settings: dict[str, str | int] = {
            "bootstrap.servers": subject.bootstrap,
            "group.id": next(_names),
            "group.protocol": "consumer",
            "enable.auto.commit": "false",
            **CLIENT,
        }
        self._members: list[Consumer] = []

    def join(self, members: int) -> None:
        for _ in range(members):
            member = Consumer(self._settings)
            member.subscribe([self._topic])
            self._members.append(member)

    def leave(self, members: int) -> None:
        leaving, self._members = self._members[-members:], self._members[:-members]
        with ThreadPoolExecutor(members) as pool:
            list(pool.map(Consumer.close, leaving))

    def await_stable(self) -> None:
        """Return when each partition has one member, and each member an even share."""
        until_s = time.monotonic() + TIMEOUT_S
        while not self._is_stable():
            if time.monotonic() > until_s:
                raise TimeoutError(f"the group is not stable after {TIMEOUT_S:g} s")
            time.sleep(_LOOK_S)

    def _is_stable(self) -> bool:
        owned: list[int] = []
        shares: set[int] = set()
        for member in self._members:
            # It also serves what the member is given or has to give up.
            message = member.poll(0)
            assert message is None or message.error() is None
            parts = [part.partition for part in member.assignment()]
            owned += parts
            shares.add(len(parts))
        share, rest = divmod(self._partitions, len(self._members))
        return len(owned) == len(set(owned)) == self._partitions and shares <= {share, share + bool(rest)}


def rebalance(subject: Subject, rounds: Rounds, *, members: int, partitions: int, moved: int) -> None:
    """Let ``members`` join, then ``moved`` more, and let these leave again."""
    group = Group(subject, make_topic(subject, partitions=partitions), partitions)
    for what in (f"{members} members join", f"{moved} more join", f"{moved} leave"):
        begun_s, cpu_s = time.perf_counter(), subject.cpu_s()
        if what.endswith("leave"):
            group.leave(moved)
        else:
            group.join(members if "members" in what else moved)
        group.await_stable()
        rounds.add(what, "value", time.perf_counter() - begun_s, is_stele=subject.is_stele)
        rounds.add(what, "cpu", subject.cpu_s() - cpu_s, is_stele=subject.is_stele)
    group.leave(members)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=2)
    bench.parser.add_argument("--only", choices=["stele", "kafka"], help="figures of one, without ratios")
    bench.add("--members", type=int, default=100, quick=10, help="default: 100")
    bench.add("--partitions", type=int, default=1000, quick=50, help="default: 1000")
    bench.add(
        "--moved", type=int, default=10, quick=2, help="members that join later, and leave (default: 10)"
    )
    with bench.run() as options, stele_and_kafka(options.only) as subjects:
        rounds = Rounds()
        sizes = {"members": options.members, "partitions": options.partitions, "moved": options.moved}
        # Once for warmth: Apache Kafka makes its topic of committed offsets.
        for number in range(options.rounds + 1):
            bench.say(f"round {number} of {options.rounds}")
            for subject in subjects:
                rebalance(subject, rounds if number else Rounds(), **sizes)
        for what in rounds.values:
            bench.row(
                f"{what} an assigned group: stable after",
                # The others depend on when the next heartbeats are.
                table="work" if "members" in what else "",
                baseline="Kafka",
                value=rounds.measure(what, "value", "s", at_most(1.0)),
                measures={"cpu": rounds.measure(what, "cpu", "s", at_most(1.0))},
            )


if __name__ == "__main__":
    main()
