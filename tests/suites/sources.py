"""Bring the sources of a suite into a directory of its own.

Package registries are asked by their ordinary clients; nothing else is fetched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """A suite cannot be run here; the message says what it needs."""


@dataclass(frozen=True, slots=True)
class GoModule:
    """A module of the Go module proxy. The zip of a module has its tests."""

    path: str
    version: str

    def bring(self, name: str, target: Path) -> None:
        need("go", name)
        answer = run(["go", "mod", "download", "-json", f"{self.path}@{self.version}"], target.parent)
        shutil.copytree(json.loads(answer)["Dir"], target)
        for path in (target, *target.rglob("*")):
            # The module cache is read-only.
            path.chmod(path.stat().st_mode | 0o200)


@dataclass(frozen=True, slots=True)
class Sdist:
    """A source distribution of PyPI that has its tests."""

    requirement: str

    def bring(self, name: str, target: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        run([*command, "--dest", str(target.parent), self.requirement], target.parent)
        (archive,) = target.parent.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(target.parent, filter="data")
        archive.unlink()
        (unpacked,) = (path for path in target.parent.iterdir() if path.is_dir())
        unpacked.rename(target)


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the name of the suite in SUITES_DIR: what no registry serves."""

    def bring(self, name: str, target: Path) -> None:
        given = os.environ.get("SUITES_DIR")
        if not given or not (source := Path(given, name)).is_dir():
            raise Unavailable(
                f"no registry serves this suite: put its repository into a folder {name}, and set SUITES_DIR "
                "to the folder around it"
            )
        shutil.copytree(source, target, symlinks=True)


def need(tool: str, name: str) -> None:
    """Raise ``Unavailable`` if ``tool`` is not on the PATH."""
    if shutil.which(tool) is None:
        raise Unavailable(f"{name} needs {tool}; install it")


def run(command: list[str], directory: Path) -> str:
    """Return what ``command`` prints. Raises ``Unavailable`` with its errors if it fails."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)} failed: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def replace_text(paths: Iterable[Path], old: str, new: str) -> None:
    """Replace what a suite has fixed, such as the port of a broker."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if old in text:
            path.write_text(text.replace(old, new), encoding="utf-8")
