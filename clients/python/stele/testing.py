"""pytest fixtures that run a real broker; installing the package registers them.

::

    def test_orders(stele_broker):
        with Client(stele_broker.binary_url) as client:
            client.produce("orders", b"first")

``stele_broker`` is a new broker per test. ``stele_broker_session`` is shared by all
tests, so use distinct topic names. ``run_broker(login=BrokerLogin())`` runs one that
requires logins. Without pytest, use
``stele.broker_process.run_broker``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .broker_process import BrokerLogin, BrokerProcess, BrokerStartError, BrokerTls, run_broker

__all__ = [
    "BrokerLogin",
    "BrokerProcess",
    "BrokerStartError",
    "BrokerTls",
    "run_broker",
    "stele_broker",
    "stele_broker_session",
]


@pytest.fixture
def stele_broker() -> Iterator[BrokerProcess]:
    """An empty broker for one test, on free ports; stopped afterwards."""
    from .broker_process import run_broker

    with run_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def stele_broker_session() -> Iterator[BrokerProcess]:
    """One broker for the whole test run; do not stop it."""
    from .broker_process import run_broker

    with run_broker() as broker:
        yield broker


def __getattr__(name: str) -> object:
    # Imported on first use, because every pytest run loads this module.
    if name in ("BrokerLogin", "BrokerProcess", "BrokerStartError", "BrokerTls", "run_broker"):
        from . import broker_process

        return getattr(broker_process, name)
    raise AttributeError(f"module 'stele.testing' has no attribute {name!r}")
