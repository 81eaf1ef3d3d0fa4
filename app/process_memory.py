"""Tunes the memory of a broker process: Python's garbage collection and the C library's heap."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

# Several requests of the usual size at once, and what is read of the next (docs/notes/performance.md).
KEPT_BYTES = 8 * 1024 * 1024
_OLDEST_GENERATION = 2
# The last two are 10 otherwise: a full collection comes sooner, and visits fewer objects. As each is set aside by the
# first that is long, all of them together cost the same.
_THRESHOLDS = (700, 5, 1)
_LONG_S = 0.002
# Blocks of memory (about three per object) that a process has more than after the last thorough collection, at least,
# when another is due; and the objects that are set aside between two looks at them.
_NEW_BLOCKS_MIN = 3_500_000
_LOOKED_AFTER = 500_000
# mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# An operator who sets one of these has decided already.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_")


@contextmanager
def prepared_memory() -> Generator[None]:
    """Keep freed memory, and collect no garbage until ``end_start``.

    Collections would visit again and again what a start makes. The end of the block collects again in any case.
    """
    thresholds = gc.get_threshold()
    gc.disable()
    keep_freed_memory()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = [each for each in gc.callbacks if not isinstance(each, _ShortCollections)]
        gc.enable()


def end_start() -> None:
    """Collect garbage from now on, but only that of new objects.

    Those created so far live as long as the process; a collection that visits them blocks the loop for 20 ms.
    Collecting their garbage first frees nothing that could be measured, and takes a tenth of a start.
    """
    gc.freeze()
    gc.callbacks.append(_ShortCollections())
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()


class _ShortCollections:
    """Keeps most full collections short: one that was long is the last to visit the objects that it has left.

    A topic of 10,000 partitions is a million objects, and every further collection would block the loop for 0.1 s. Such
    objects are freed as ever when nothing refers to them any more. What is garbage because of a cycle stays, as that of
    requests that were in progress, until the process has twice the blocks of memory that the last thorough collection
    has left: then the next one is thorough, too. To count the objects that were set aside would take a quarter of the
    time of such a collection.
    """

    def __init__(self) -> None:
        self._begin_s = 0.0
        self._set_aside = 0
        self._is_thorough = False
        self._note_blocks()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] != _OLDEST_GENERATION:
            return
        if phase == "start":
            self._begin_s = time.perf_counter()
        elif time.perf_counter() - self._begin_s > _LONG_S or self._is_thorough:
            self._set_aside_what_is_left()

    def _note_blocks(self) -> None:
        blocks = sys.getallocatedblocks()
        self._blocks_max = blocks + max(blocks, _NEW_BLOCKS_MIN)

    def _set_aside_what_is_left(self) -> None:
        self._set_aside += len(gc.get_objects(_OLDEST_GENERATION))
        gc.freeze()
        if self._is_thorough:
            self._is_thorough, self._set_aside = False, 0
            self._note_blocks()
        elif self._set_aside > _LOOKED_AFTER:
            self._set_aside = 0
            self._is_thorough = sys.getallocatedblocks() > self._blocks_max
            if self._is_thorough:
                gc.unfreeze()


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
