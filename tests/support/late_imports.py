"""Run ``stele``, and write to the file in ``LATE_IMPORTS`` what its main thread imports once the broker is ready."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stele import cli

import app.main
from app.settings import Settings

_FRAMES_SHOWN = 3


def _watch() -> None:
    """Note imports of this thread from now on. An audit hook cannot be removed, and the process ends soon."""
    thread, report = threading.get_ident(), Path(os.environ["LATE_IMPORTS"])
    report.touch()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and threading.get_ident() == thread:
            frames = [frame for frame in traceback.extract_stack()[:-1] if "importlib" not in frame.filename]
            by = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[: -_FRAMES_SHOWN - 1 : -1])
            with report.open("a") as file:
                file.write(f"{arguments[0]} by {by}\n")

    sys.addaudithook(note)


def main() -> None:
    announce = app.main._announce

    def announce_and_watch(settings: Settings, ports: Mapping[Any, Any]) -> None:
        _watch()
        announce(settings, ports)

    app.main._announce = announce_and_watch
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
