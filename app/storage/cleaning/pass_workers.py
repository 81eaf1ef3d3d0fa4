"""Runs passes in a process of their own, or in a thread.

A broker uses the process: its event loop and the pass do not share an interpreter. The
thread is for files that exist only in this process, as those of the tests that cut the power.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ...clock import Clock
from ...errors import CorruptLog
from ..disk.files import Files
from ..disk.pace import Pace, WorkAborted
from . import worker_process
from .cleaned_segment import CleanedSegmentTooLarge
from .pass_state import PassCounts
from .pass_work import PassOrder, PassWork
from .planning import SegmentFacts
from .worker_messages import (
    Answer,
    Begin,
    Corrupt,
    DiskError,
    End,
    Failed,
    Mapped,
    Request,
    Rewrite,
    Rewritten,
    TooLarge,
    decode_answer,
    encode,
)

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# An answer has some fields and warnings, each with a path.
_ANSWER_BYTES_MAX = 1 << 20


class PassWorker(Protocol):
    """Does one pass at a time. Methods belong to the event loop."""

    async def begin(self, order: PassOrder, *, bytes_per_s: float | None) -> int:
        """Map the keys; returns the offset up to which they are known.

        Raises:
            WorkAborted: ``abort`` was called; here and in ``rewrite``.
            CorruptLog, OSError: as ``PassWork``; an ``OSError``, too, if the process ended.
        """
        ...

    async def rewrite(self, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        """Write the cleaned segment of ``group``; False if all of it stays as it is.

        Raises:
            CleanedSegmentTooLarge: it does not fit into one file.
        """
        ...

    def abort(self) -> None:
        """End the pass that runs. Files ``*.cleaned`` may be left."""
        ...

    async def end(self) -> None:
        """Give back the memory of the pass, however it ended."""
        ...

    async def close(self) -> None:
        """Give back everything."""
        ...


class ThreadWorker:
    """``run`` runs a function in the thread of the cleaner."""

    def __init__(
        self, files: Files, clock: Clock, run: Callable[[Callable[[], object]], Awaitable[object]]
    ) -> None:
        self._files = files
        self._clock = clock
        self._run = run
        self._aborted = threading.Event()
        self._work: PassWork | None = None

    async def begin(self, order: PassOrder, *, bytes_per_s: float | None) -> int:
        self._aborted = threading.Event()
        pace = Pace(self._aborted, clock=self._clock, bytes_per_s=bytes_per_s)
        self._work = work = PassWork(self._files, order, pace)
        return await self._in_thread(work.map_keys)

    async def rewrite(self, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        work = self._work
        assert work is not None, "a pass begins first"
        return await self._in_thread(lambda: work.rewrite(group, counts))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        results: list[_T] = []
        await self._run(lambda: results.append(work()))
        return results[0]

    def abort(self) -> None:
        self._aborted.set()

    async def end(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None

    async def close(self) -> None:
        await self.end()


class ProcessWorker:
    """Starts the process with the first pass, and again after it has died.

    The process outlives a pass: most brokers without compacted topics never start it, and
    one that has them needs it again.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: asyncio.subprocess.Process | None = None
        self._is_aborted = False

    @property
    def pid(self) -> int | None:
        """None while there is no process."""
        return None if self._process is None else self._process.pid

    async def begin(self, order: PassOrder, *, bytes_per_s: float | None) -> int:
        self._is_aborted = False
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                worker_process.__name__,
                str(self._data_dir),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_ANSWER_BYTES_MAX,
                # A signal to the group of the broker is for the broker.
                start_new_session=True,
            )
        answer = await self._ask(Begin(order, bytes_per_s))
        assert isinstance(answer, Mapped)
        return answer.mapped_end

    async def rewrite(self, group: Sequence[SegmentFacts], counts: PassCounts) -> bool:
        answer = await self._ask(Rewrite(list(group)))
        assert isinstance(answer, Rewritten)
        for line in answer.warnings:
            logger.warning("%s", line)
        counts.add(answer.counts)
        return answer.is_new

    def abort(self) -> None:
        self._is_aborted = True
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        if self._process is not None:
            try:
                await self._ask(End())
            except (WorkAborted, ChildProcessError) as error:
                # Its memory has gone with it.
                logger.debug("the compaction process has ended: %s", error)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            # It ends with its input, even in the middle of a pass.
            process.stdin.close()
            await process.wait()

    async def _ask(self, request: Request) -> Answer:
        process = self._process
        if self._is_aborted or process is None:
            await self.close()
            raise WorkAborted
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            process.stdin.write(encode(request))
            await process.stdin.drain()
            line = await process.stdout.readline()
            answer = decode_answer(line)
        except (ConnectionError, ValueError, msgspec.MsgspecError):
            # It has died, and its last line may be incomplete.
            await self.close()
            if self._is_aborted:
                raise WorkAborted from None
            raise ChildProcessError(
                f"the compaction process ended with code {process.returncode}; a later pass starts it again"
            ) from None
        return _checked(answer)


def _checked(answer: Answer) -> Answer:
    """Raises the error that ``answer`` stands for."""
    match answer:
        case TooLarge():
            raise CleanedSegmentTooLarge
        case Corrupt():
            raise CorruptLog(
                path=Path(answer.path),
                position=answer.position,
                offset=answer.offset,
                next_offset=answer.next_offset,
                reason=answer.reason,
            )
        case DiskError():
            raise OSError(answer.number, answer.text, answer.path)
        case Failed():
            raise RuntimeError(f"the compaction process failed:\n{answer.traceback}")
        case _:
            return answer
