"""Run ``stele``, and report to files in ``REPORTS`` what requests must not do to the process of a broker.

- ``imports``  what its main thread imports once the broker is ready
- ``garbage``  made at SIGUSR1: objects of ours that nothing refers to but their own cycles, by type
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stele import cli

import app.main
from app.settings import Settings

_FRAMES_SHOWN = 3
_OURS = ("app.", "stele.")
_REPORTS = Path(os.environ["REPORTS"])


def _watch_imports() -> None:
    """Note imports of this thread from now on. An audit hook cannot be removed, and the process ends soon."""
    thread, report = threading.get_ident(), _REPORTS / "imports"
    report.touch()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and threading.get_ident() == thread:
            frames = [frame for frame in traceback.extract_stack()[:-1] if "importlib" not in frame.filename]
            by = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[: -_FRAMES_SHOWN - 1 : -1])
            with report.open("a") as file:
                file.write(f"{arguments[0]} by {by}\n")

    sys.addaudithook(note)


def _keep_garbage() -> None:
    """Collect no garbage from now on, so that all of it is there when it is reported."""
    gc.disable()
    gc.enable = lambda: None
    signal.signal(signal.SIGUSR1, _report_garbage)


def _report_garbage(*_: object) -> None:
    gc.callbacks.clear()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    types = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    unfinished = _REPORTS / "unfinished"
    unfinished.write_text(
        "".join(f"{count} {name}\n" for name, count in types.most_common() if name.startswith(_OURS))
    )
    unfinished.rename(_REPORTS / "garbage")


def main() -> None:
    announce = app.main._announce

    def announce_and_watch(settings: Settings, ports: Mapping[Any, Any]) -> None:
        _watch_imports()
        _keep_garbage()
        announce(settings, ports)

    app.main._announce = announce_and_watch
    sys.exit(cli.main())


if __name__ == "__main__":
    main()
