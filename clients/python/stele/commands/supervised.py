"""What commands have in common that a broker runs beside itself."""

from __future__ import annotations

import os
import select
from collections.abc import Callable


def end_with_parent(stop: Callable[[], None], silence_s: float | None) -> None:
    """Call ``stop`` when standard input closes.

    That is when the broker that started this process ends. One of several brokers writes to it while it has the
    lease of the work. If that stops for ``silence_s``, because the broker is paused or has ended, another one is
    about to go on: this process ends at once, because only one may work.
    """
    # Not sys.stdin: the interpreter cannot exit while a thread holds the lock of its buffer.
    while select.select([0], [], [], silence_s)[0] and os.read(0, 4096):
        pass
    if silence_s is not None:
        os._exit(1)
    stop()
