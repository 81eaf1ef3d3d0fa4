"""How a broker process treats its memory: what Python collects, and what the C library gives back to the system."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

# Several requests of the usual size at once, and what is read of the next; see ADR-0065.
KEPT_BYTES = 8 * 1024 * 1024
# mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Whoever sets one of these has decided already.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


def begin_start() -> None:
    """Prepare for what a start makes, until ``end_start``.

    Collections would visit it again and again.
    """
    gc.disable()
    keep_freed_memory()


def end_start() -> None:
    """Collect garbage from now on, but only that of new objects.

    Those created so far live as long as the process; a collection that visits them blocks the loop for 20 ms.
    Collecting their garbage first frees nothing that could be measured, and takes a tenth of a start.
    """
    gc.freeze()
    gc.enable()


def keep_freed_memory() -> bool:
    """Keep up to ``KEPT_BYTES`` of what was freed at the end of a heap for the next request.

    glibc gives it back at 128 KiB, or at twice the size of the largest block that was freed, and each page comes back
    with a fault: twice the CPU time for requests of 100 KB. Return False where nothing was changed: without glibc,
    or if the environment has settings for it.
    """
    if sys.platform != "linux" or not os.environ.keys().isdisjoint(_VARIABLES):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # To set one of them ends the adaptation of both.
    return all(libc.mallopt(option, KEPT_BYTES) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))
