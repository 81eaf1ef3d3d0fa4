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
