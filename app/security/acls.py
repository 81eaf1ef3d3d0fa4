"""The access rules of a broker: all in memory.

A change goes to the store first and then counts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..cluster.acls import AclStore
from ..errors import TooManyAcls
from ..work_budget import sorted_in_turns, visited
from .acl import Acl, AclFilter

ACLS_MAX = 10_000


class Acls:
    """Changes come one at a time; observers are called after each."""

    def __init__(
        self, store: AclStore, *, before_change: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """``before_change`` lets ``refresh`` take over what other brokers changed."""
        self._store = store
        self._before_change = before_change
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-acls")
        self._lock = asyncio.Lock()
        # In the order in which they are listed.
        self._acls: dict[Acl, None] = {}
        self._observers: list[Callable[[], None]] = []

    async def open(self) -> None:
        await self.refresh()

    async def refresh(self) -> None:
        """Take over the rules that are stored, which another broker may have changed."""
        async with self._lock:
            records = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.acls)
            acls = dict.fromkeys(map(Acl.of, records))
            if acls.keys() != self._acls.keys():
                self._acls = acls
                for observer in self._observers:
                    observer()

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    def observe(self, observer: Callable[[], None]) -> None:
        self._observers.append(observer)

    def all(self) -> list[Acl]:
        return list(self._acls)

    async def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that ``wanted`` selects, by resource."""
        found = [acl async for acl in visited(self.all()) if wanted.selects(acl)]
        return await sorted_in_turns(found, key=lambda acl: acl.record)

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add rules, all or none; those that exist stay as they are.

        Raises InvalidAcl, TooManyAcls.
        """
        async for acl in visited(acls):
            acl.check()
        await self._prepare()
        async with self._lock:
            new = dict.fromkeys([acl async for acl in visited(acls) if acl not in self._acls])
            if len(self._acls) + len(new) > ACLS_MAX:
                raise TooManyAcls(ACLS_MAX)
            await self._change(new, ())

    async def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the rules that ``wanted`` selects, together, and return them."""
        await self._prepare()
        async with self._lock:
            found = await self.find(wanted)
            await self._change({}, found)
        return found

    async def _prepare(self) -> None:
        if self._before_change is not None:
            await self._before_change()

    async def _change(self, added: dict[Acl, None], removed: Sequence[Acl]) -> None:
        if not added and not removed:
            return
        new = [acl.record async for acl in visited(added)]
        old = [acl.record async for acl in visited(removed)]
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.change_acls, new, old)
        for acl in removed:
            del self._acls[acl]
        self._acls |= added
        for observer in self._observers:
            observer()
