"""A small file system that a test can fill, and take space from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Take all the space that is left, as another program would."""
        with (self.path / "other-program").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(os.urandom(4096))

    def free(self) -> None:
        (self.path / "other-program").unlink()


@contextmanager
def small_disk(path: Path, *, size_bytes: int) -> Generator[SmallDisk]:
    """Mount a file system of ``size_bytes`` at ``path``; skip the test where that is not permitted."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "stele-test", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"this needs the right to mount a tmpfs: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
