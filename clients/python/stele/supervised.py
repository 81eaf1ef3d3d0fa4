"""How a process that a broker runs beside itself reports, and how it ends with the broker.

The broker holds its standard input open, and reads JSON lines from its standard output.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any


def silence_s() -> float | None:
    """Return the longest silence of the broker that this process may go on in; None without a lease.

    One of several brokers writes to it while it has the lease of the work. If it is silent for longer, because it is paused
    or has ended, another one is about to go on.
    """
    given = os.environ.get("STELE_LEASE_SILENCE")
    return float(given) if given else None


def end_with_broker(stop: Callable[[], None]) -> None:
    """Call ``stop`` in a thread when standard input ends; with a lease, end the process at once, also after a silence."""
    threading.Thread(target=_await_end, args=(stop, silence_s()), daemon=True).start()


def _await_end(stop: Callable[[], None], silence_s: float | None) -> None:
    # Not sys.stdin: the interpreter cannot exit while a thread holds the lock of its buffer.
    while select.select([0], [], [], silence_s)[0] and os.read(0, 4096):
        pass
    if silence_s is not None:
        os._exit(1)
    stop()


def report(document: Mapping[str, Any]) -> None:
    """Write a status as a line of JSON."""
    # The supervisor may have gone; the end of standard input stops the process.
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{json.dumps(document)}\n")
        sys.stdout.flush()
