"""Run a broker for a benchmark, a demo or a load test, on free ports."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from stele.broker_process import BrokerProcess, run_broker


def running_broker(*arguments: str, data_dir: Path | None = None) -> AbstractContextManager[BrokerProcess]:
    """``stele serve`` with ``arguments``; its data is deleted afterwards unless ``data_dir`` is given."""
    return run_broker(data_dir, arguments=arguments)
