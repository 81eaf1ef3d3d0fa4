"""A broker process that kills itself at a chosen step of the first transaction that ends.

``DyingBroker`` starts it, and after the death a broker as users have it, on the same data and ports.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from stele.broker_process import BrokerProcess, Process

from app.cluster.group_store import StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore
from app.cluster.transaction_store import OutcomeRecord
from app.transactions.endings import Endings
from tests.support.faults.hooks import HOOK

# The outcome is not stored; it is durable; the markers are appended, too. None is answered.
Step = Literal["before", "stored", "marked"]
_STEP = "DYING_BROKER_STEP"
_INSTALL = "tests.support.dying_broker:install"


class DyingBroker(BrokerProcess):
    """``step`` is where the next process dies; None: it lives."""

    step: Step | None = None

    def spawn(self, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]) -> Process:
        if self.step is None:
            return super().spawn(arguments, stderr, environment)
        return super().spawn(arguments, stderr, {**environment, _STEP: self.step, HOOK: _INSTALL})

    def await_death(self) -> None:
        """Return when it has killed itself, and let the next process live."""
        assert self._process is not None
        assert self._process.wait(60) == -signal.SIGKILL, self.stderr
        self._process = self.step = None


@contextmanager
def dying_broker(step: Step) -> Generator[DyingBroker]:
    with tempfile.TemporaryDirectory(prefix="stele-") as scratch:
        broker = DyingBroker(Path(scratch) / "data")
        broker.step = step
        broker.start()
        try:
            yield broker
        finally:
            if broker.is_running:
                broker.stop()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at(step: str) -> None:
    write, complete = SqliteGroupStore.write, Endings._complete

    def dying_write(self: SqliteGroupStore, changes: Sequence[StoreChange]) -> None:
        has_outcome = any(isinstance(change, OutcomeRecord) for change in changes)
        if has_outcome and step == "before":
            _die()
        write(self, changes)
        if has_outcome and step == "stored":
            _die()

    def dying_complete(self: Endings, transaction: Any) -> None:
        if step == "marked":
            _die()
        complete(self, transaction)

    SqliteGroupStore.write = dying_write
    Endings._complete = dying_complete


def install() -> None:
    """Let this process, which is about to become a broker, die at the step that its environment names."""
    _die_at(os.environ.pop(_STEP))
