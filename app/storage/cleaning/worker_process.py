"""The compaction process, ``python -m … DATA_DIR``.

The broker starts it with its first pass.

It reads segments, writes ``*.cleaned`` files beside them, and changes nothing that a
reader of the log sees; the broker puts them in place. It ends when its standard
input does, so it also ends when the broker is killed. On start it waits until the process of
a killed broker has ended, because two of them would write the same files.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import traceback
from pathlib import Path

from ...clock import SystemClock
from ...errors import CorruptLog
from ..disk.files import RealFiles, lock_directory
from ..disk.pace import Pace
from .cleaned_segment import CleanedSegmentTooLarge
from .pass_state import PassCounts
from .pass_work import PassWork
from .worker_messages import (
    Answer,
    Begin,
    Corrupt,
    DiskError,
    Ended,
    Failed,
    Mapped,
    Request,
    Rewrite,
    Rewritten,
    TooLarge,
    decode_request,
    encode,
)

# Lines of a log of which many batches are unreadable; the others are only counted.
_WARNINGS_MAX = 20


class _Warnings(logging.Handler):
    """Keeps the first lines until they are taken."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < _WARNINGS_MAX:
            self._lines.append(record.getMessage())

    def take(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines


class Worker:
    """Answers the requests of one pass after the other."""

    def __init__(self, warnings: _Warnings) -> None:
        self._warnings = warnings
        self._work: PassWork | None = None

    def answer(self, request: Request) -> Answer:
        try:
            return self._answer(request)
        except CleanedSegmentTooLarge:
            return TooLarge()
        except CorruptLog as error:
            return Corrupt(
                path=str(error.path),
                position=error.position,
                offset=error.offset,
                next_offset=error.next_offset,
                reason=error.reason,
            )
        except OSError as error:
            path = None if error.filename is None else str(error.filename)
            return DiskError(number=error.errno or 0, text=error.strerror or str(error), path=path)
        except Exception:  # noqa: BLE001 (the broker logs it)
            return Failed(traceback=traceback.format_exc())

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, Begin):
            self._end()
            pace = Pace(
                threading.Event(),
                clock=SystemClock(),
                bytes_per_s=request.bytes_per_s,
                shares_interpreter=False,
            )
            self._work = PassWork(RealFiles(), request.order, pace)
            return Mapped(mapped_end=self._work.map_keys())
        if isinstance(request, Rewrite):
            assert self._work is not None, "a pass begins first"
            counts = PassCounts()
            is_new = self._work.rewrite(request.group, counts)
            return Rewritten(is_new=is_new, counts=counts, warnings=self._warnings.take())
        self._end()
        return Ended()

    def _end(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None


def main() -> None:
    warnings = _Warnings()
    logging.basicConfig(handlers=[warnings], level=logging.WARNING)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        # The broker has gone; so the rest of the pass is not needed.
        os._exit(0)

    threading.Thread(target=read, name="stele-requests", daemon=True).start()
    lock_directory(Path(sys.argv[1]))
    worker = Worker(warnings)
    while True:
        answer = worker.answer(decode_request(lines.get()))
        sys.stdout.buffer.write(encode(answer))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
