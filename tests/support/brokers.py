"""Several brokers with shared storage on this machine."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
from stele.testing import BrokerProcess, run_broker


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

    def cluster(self, broker_id: int) -> dict[str, Any]:
        """Return what a broker says of the cluster."""
        answer = httpx.get(f"{self[broker_id].http_url}/v1/cluster")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def coordinator(self) -> int:
        """Wait until every running broker names the same live coordinator of the groups, and return its id."""
        running = self.running()
        while True:
            named = {self.cluster(number)["leases"].get("groups", {}).get("broker_id") for number in running}
            if len(named) == 1 and named <= running.keys():
                return named.pop()


@contextmanager
def run_brokers(
    path: Path, postgres_url: str, count: int = 3, *, environment: Mapping[str, str] | None = None
) -> Generator[Brokers]:
    """Start ``count`` brokers, and end those that are left."""
    with ExitStack() as stack:
        yield Brokers(
            {
                number: stack.enter_context(
                    run_broker(
                        path / f"broker-{number}",
                        environment={
                            "STELE_STORAGE": "shared",
                            "STELE_POSTGRES_URL": postgres_url,
                            "STELE_BROKER_ID": str(number),
                            "STELE_BROKER_RACK": f"rack-{number}",
                            **(environment or {}),
                        },
                    )
                )
                for number in range(1, count + 1)
            }
        )
