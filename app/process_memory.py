"""Tunes the memory of a broker process: Python's garbage collection and the C library's heap."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

# Several requests of the usual size at once, and what is read of the next (docs/notes/performance.md).
KEPT_BYTES = 8 * 1024 * 1024
# mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# An operator who sets one of these has decided already.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


@contextmanager
def prepared_memory() -> Generator[None]:
    """Keep freed memory, and collect no garbage until ``end_start``.

    Collections would visit again and again what a start makes. The end of the block collects again in any case.
    """
    gc.disable()
    keep_freed_memory()
    try:
        yield
    finally:
        gc.enable()


def end_start() -> None:
    """Collect garbage from now on, but only that of new objects.

    Those created so far live as long as the process; a collection that visits them blocks the loop for 20 ms.
    Collecting their garbage first frees nothing that could be measured, and takes a tenth of a start.
    """
    gc.freeze()
    gc.enable()


def keep_freed_memory() -> bool:
    """Keep freed memory for the next request.

    Up to ``KEPT_BYTES`` at the end of a heap. glibc gives back more than 128 KiB, or more than twice the size of the
    largest block that was freed, and each page comes back with a fault. Return False where nothing was
    changed: without glibc, or if the environment has settings for it.
    """
    if sys.platform != "linux" or _is_set_by_environment():
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    # To set one of them ends the adaptation of both.
    return all(libc.mallopt(option, KEPT_BYTES) for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD))


def _is_set_by_environment() -> bool:
    if any(name in os.environ for name in _VARIABLES):
        return True
    return "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
