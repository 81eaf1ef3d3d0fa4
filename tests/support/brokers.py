"""Several brokers with shared storage on this machine.

With ``STELE_TEST_BROKERS=3`` suites about what a broker serves run against three of them: a suite whose broker
comes from ``run_broker_or_cluster`` then has its HTTP listener at one broker, the binary one at another and the
Kafka listener at a third.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from stele.broker_process import STOP_TIMEOUT_S
from stele.testing import BrokerProcess, run_broker

from app.cluster.group_shards import SHARD_LEASES, lease_of_group
from app.cluster.leaders import ranked
from app.cluster.membership import Member
from load.postgres_server import PostgresServer
from tests.support.postgres import postgres_bin
from tests.support.waiting import Pauses, eventually

BROKERS = int(os.environ.get("STELE_TEST_BROKERS", "1"))


def await_no_quotas(processes: Iterable[BrokerProcess]) -> None:
    """Wait until no broker knows a quota: one of a test would limit the next one, too."""
    for process in processes:
        url = f"{process.http_url}/v1/quotas"
        eventually(lambda url=url: not httpx.get(url).json()["quotas"], "quotas are gone")


class Brokers:
    """Brokers with the ids 1, 2 and so on; each can be killed and started again."""

    def __init__(self, processes: dict[int, BrokerProcess]) -> None:
        self.processes = processes

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.processes[broker_id]

    @property
    def kafka_bootstrap(self) -> str:
        return ",".join(process.kafka_bootstrap for process in self.processes.values())

    def running(self) -> dict[int, BrokerProcess]:
        return {number: process for number, process in self.processes.items() if process.is_running}

    def http(self, broker_id: int) -> httpx.Client:
        """Return a client of the HTTP listener of a broker."""
        return httpx.Client(base_url=self[broker_id].http_url)

    def cluster(self, broker_id: int) -> dict[str, Any]:
        """Return what a broker says of the cluster."""
        with self.http(broker_id) as http:
            answer = http.get("/v1/cluster")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group, once it is the preferred one.

        Every running broker knows it then, it serves the group, and nothing moves until a broker comes or goes.
        """
        lease = lease_of_group(group)
        preferred = self._preferred(lease)
        self._await_holders({lease: preferred})
        return preferred

    def settle(self) -> None:
        """Wait for the state that ``coordinator`` describes in all shards of groups."""
        self._await_holders({lease: self._preferred(lease) for lease in SHARD_LEASES})

    def _preferred(self, lease: str) -> int:
        running = self.running()
        members = [Member(broker_id=n, incarnation=UUID(int=n), rack=None, endpoints={}) for n in running]
        return ranked(lease.encode(), members)[0].broker_id

    def _await_holders(self, holders: Mapping[str, int]) -> None:
        """Wait until every running broker knows these holders, and they serve."""
        pauses = Pauses()
        while not all(self._names(number, holders) for number in self.running()):
            pauses.pause()
        for lease, holder in holders.items():
            while not self._serves(holder, lease):
                pauses.pause()

    def _names(self, broker_id: int, holders: Mapping[str, int]) -> bool:
        leases = self.cluster(broker_id)["leases"]
        return all(leases.get(lease, {}).get("broker_id") == holder for lease, holder in holders.items())

    def _serves(self, broker_id: int, lease: str) -> bool:
        """Tell whether a broker has read the groups of a shard."""
        group = next(name for name in map(str, itertools.count()) if lease_of_group(name) == lease)
        with self.http(broker_id) as http:
            return http.get(f"/v1/groups/{group}").status_code in (200, 404)


@contextmanager
def run_brokers(
    path: Path,
    postgres_url: str | Sequence[str],
    count: int = 3,
    *,
    environment: Mapping[str, str] | None = None,
) -> Generator[Brokers]:
    """Start ``count`` brokers, and end those that are left.

    All have the same ``postgres_url``, or each its own.
    """
    urls = [postgres_url] * count if isinstance(postgres_url, str) else postgres_url
    with ExitStack() as stack:
        yield Brokers(
            {
                number: stack.enter_context(
                    run_broker(
                        path / f"broker-{number}",
                        environment={
                            "STELE_STORAGE": "shared",
                            "STELE_POSTGRES_URL": url,
                            "STELE_BROKER_ID": str(number),
                            "STELE_BROKER_RACK": f"rack-{number}",
                            **(environment or {}),
                        },
                    )
                )
                for number, url in zip(range(1, count + 1), urls, strict=True)
            }
        )


class ClusterAsBroker(BrokerProcess):
    """All brokers behind the URLs of a single one: each listener is another broker's."""

    def __init__(self, path: Path, brokers: Brokers) -> None:
        super().__init__(path)
        self._brokers = brokers
        self._take_ports()

    def _take_ports(self) -> None:
        self.http_port = self._brokers[1].http_port
        self.registry_port = self._brokers[1].registry_port
        self.binary_port = self._brokers[2].binary_port
        self.registry_port = self._brokers[2].registry_port
        self.kafka_port = self._brokers[len(self._brokers.processes)].kafka_port

    @property
    def is_running(self) -> bool:
        return bool(self._brokers.running())

    def start(self) -> None:
        """Start all brokers that do not run, and wait until each knows all the others."""
        for process in self._brokers.processes.values():
            if not process.is_running:
                process.start()
        for number in self._brokers.processes:
            pauses = Pauses()
            while len(self._brokers.cluster(number)["brokers"]) < len(self._brokers.processes):
                pauses.pause()
        self._take_ports()

    def kill(self) -> None:
        for process in self._brokers.processes.values():
            process.kill()

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop all brokers; return the largest exit code."""
        return max(process.stop(timeout_s=timeout_s) for process in self._brokers.processes.values())


@contextmanager
def run_broker_or_cluster(
    path: Path, *, environment: Mapping[str, str] | None = None
) -> Generator[BrokerProcess]:
    """Start one broker in ``path``, or ``STELE_TEST_BROKERS`` of them and their PostgreSQL server."""
    path.mkdir(parents=True, exist_ok=True)
    if BROKERS == 1:
        with run_broker(path / "broker", environment=environment) as broker:
            yield broker
        return
    with (
        PostgresServer(postgres_bin(), fsync="off", wal_level="replica") as server,
        run_brokers(path, server.dsn, BROKERS, environment=environment) as brokers,
    ):
        cluster = ClusterAsBroker(path / "cluster", brokers)
        cluster.start()
        yield cluster
