"""What the C library gives back to the system, counted in page faults of a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from app.process_memory import KEPT_BYTES

BLOCK_BYTES = 256_000
ROUNDS = 200
# As a connection does: what is read, a request that is put together of it, and both are freed.
PROGRAM = f"""
import resource
from app.process_memory import keep_freed_memory
print(keep_freed_memory())

def requests(count):
    for _ in range(count):
        request = bytearray()
        for _ in range(3):
            request += b"x" * {BLOCK_BYTES}
        del request

requests(20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
requests({ROUNDS})
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**variables: str) -> tuple[bool, int]:
    """Return whether memory is kept, and the page faults of ``ROUNDS`` requests."""
    environment = {
        name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"
    }
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, **variables},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return printed[0] == "True", int(printed[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    is_kept, faults = run()
    assert is_kept
    assert faults < ROUNDS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", str(KEPT_BYTES // 2)),
        ("GLIBC_TUNABLES", f"glibc.malloc.trim_threshold={KEPT_BYTES // 2}"),
    ],
)
def test_settings_of_the_environment_are_left_alone(name: str, value: str) -> None:
    is_kept, _ = run(**{name: value})
    assert not is_kept


GROWING = """
import gc
from app.process_memory import end_start, prepared_memory

visited = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        visited.append(len(gc.get_objects()))

with prepared_memory():
    end_start()
    gc.callbacks.append(look)
    kept = [[number] for number in range(1_000_000)]
    gc.callbacks.remove(look)
print(len(visited), max(visited), len(gc.callbacks))
"""


def test_no_collection_visits_all_that_a_growing_broker_has_made() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", GROWING], check=True, capture_output=True, text=True
    ).stdout.split()
    collections, most, callbacks_left = map(int, printed)
    assert collections > 1
    assert most < 500_000
    assert callbacks_left == 0


LEAKING = """
import gc
from app.process_memory import end_start, prepared_memory

class Cycle:
    alive = 0
    def __init__(self):
        self.myself = self
        Cycle.alive += 1
    def __del__(self):
        Cycle.alive -= 1

most = 0
with prepared_memory():
    end_start()
    # In progress at any time, as requests are; each is garbage after a while.
    for _ in range(60):
        kept = [Cycle() for _ in range(100_000)]
        most = max(most, Cycle.alive)
print(most)
"""


def test_garbage_that_was_alive_during_a_collection_is_collected_in_the_end() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LEAKING], check=True, capture_output=True, text=True
    ).stdout
    # Of 6 million.
    assert int(printed) < 2_500_000


WAITING = """
import gc
from app.process_memory import end_start, prepared_memory

visited = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        visited.append(len(gc.get_objects()))

with prepared_memory():
    end_start()
    lasting = [[number] for number in range(200_000)]
    gc.callbacks.append(look)
    # Alive during a collection and freed after it, as what long polls wait with is.
    for _ in range(60):
        waiting = [[number] for number in range(100_000)]
    gc.callbacks.remove(look)
print(len(visited), max(visited))
"""


def test_what_is_freed_after_it_was_set_aside_makes_no_collection_thorough() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", WAITING], check=True, capture_output=True, text=True
    ).stdout.split()
    collections, most = map(int, printed)
    assert collections > 60, "6 million objects were set aside one time or another"
    assert most < 200_000


PASSING = """
import gc
from app.process_memory import end_start, prepared_memory

visited = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        visited.append(len(gc.get_objects()))

with prepared_memory():
    of_start = [[number] for number in range(1_000_000)]
    end_start()
    gc.callbacks.append(look)
    for _ in range(20):
        # As of connections that are opened, and closed again.
        kept = [[number] for number in range(200_000)]
        del kept
    gc.callbacks.remove(look)
print(max(visited))
"""


def test_objects_that_have_been_freed_since_are_no_reason_to_visit_all_others() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", PASSING], check=True, capture_output=True, text=True
    ).stdout
    assert int(printed) < 1_000_000
