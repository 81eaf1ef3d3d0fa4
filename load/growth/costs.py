"""What work costs a broker: its CPU time per unit, its memory, and how long it holds a bystander.

A *hold* is the CPU time that the broker spends while one small request of a bystander waits. It is that of all threads,
so it is an upper bound of the time for which the event loop was not free. The bystander is a process of its own,
because the clients of the work are busy themselves. CPU time per unit is measured without it.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from stele.broker_process import BrokerProcess

from ..kafka_frames import connect, metadata_request, receive
from ..process_usage import PeakMemory, process_cpu_s
from ..subjects import Subject

TIMEOUT_S = 300.0
# The broker has nothing left to do when it uses less CPU time than this between two looks.
_QUIET_S, _LOOK_S = 0.002, 0.1
# Between two requests of the bystander.
_PAUSE_S = 0.001

# Does the work once, and returns how many units it was.
Work = Callable[[], Awaitable[int]]


class Cost(NamedTuple):
    """CPU time per unit, and by how much the memory of the broker was higher than before."""

    cpu_us: float
    memory_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kind of work at one size: its cost, and the holds of the bystander beside it."""

    what: str
    size: int
    cost: Cost
    holds_ms: Sequence[float]


class Costs:
    """Measures the work of one broker."""

    def __init__(self, subject: Subject, beside: asyncio.subprocess.Process | None = None) -> None:
        self.subject = subject
        self._beside = beside

    @property
    def broker(self) -> BrokerProcess:
        """That of Stele."""
        (broker,) = self.subject.brokers
        assert isinstance(broker, BrokerProcess)
        return broker

    async def of(self, what: str, size: int, work: Work, *, again: Work | None = None) -> Point:
        """Do ``work`` alone, and then ``again`` (the same, if it can be done twice) beside the bystander.

        What the yardstick takes counts for the second time, after its compiler has seen the first.
        """
        cost = await self.cost(work)
        if not self.subject.is_stele:
            return Point(what=what, size=size, cost=await self.cost(again or work), holds_ms=())
        return Point(what=what, size=size, cost=cost, holds_ms=await self.holds_ms(again or work))

    async def cost(self, work: Work) -> Cost:
        await self.quiet()
        pid = self.subject.pid
        memory = PeakMemory(pid)
        memory.reset()
        before_mib, before_s = memory.mib, process_cpu_s(pid)
        units = await work()
        cpu_s = process_cpu_s(pid) - before_s
        return Cost(cpu_s / units * 1e6, max(0.0, memory.mib - before_mib))

    async def holds_ms(self, work: Work) -> list[float]:
        """Return the holds of the bystander while ``work`` is done."""
        await self.quiet()
        await self._say()
        await work()
        return json.loads(await self._say())

    async def quiet(self) -> None:
        """Wait until the broker has done what it had to do."""
        before_s, quiet_s = -1.0, _QUIET_S if self.subject.is_stele else 10 * _QUIET_S
        while (now_s := process_cpu_s(self.subject.pid)) - before_s > quiet_s:
            before_s = now_s
            await asyncio.sleep(_LOOK_S)

    async def _say(self) -> bytes:
        assert self._beside is not None
        stdin, stdout = self._beside.stdin, self._beside.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"\n")
        return await stdout.readline()


@asynccontextmanager
async def costs_of(subject: Subject) -> AsyncGenerator[Costs]:
    if not subject.is_stele:
        yield Costs(subject)
        return
    command = sys.executable, "-m", "load.growth.costs", *map(str, (*subject.address, subject.pid))
    pipe = asyncio.subprocess.PIPE
    # A line may have a thousand holds.
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=1 << 24)
    try:
        yield Costs(subject, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


def stand_by(host: str, port: int, pid: int) -> None:
    """Send small requests between two lines of stdin, over and over; print a line first, and last the holds in ms."""
    with connect(host, port, timeout_s=TIMEOUT_S) as connection:
        while sys.stdin.readline():
            holds_ms: list[float] = []
            print(flush=True)
            while not holds_ms or not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
                before_s = process_cpu_s(pid)
                connection.sendall(metadata_request([], b"bystander"))
                receive(connection)
                holds_ms.append(round((process_cpu_s(pid) - before_s) * 1000, 3))
            sys.stdin.readline()
            print(json.dumps(holds_ms), flush=True)


if __name__ == "__main__":
    stand_by(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
