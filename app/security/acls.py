"""The access rules of a broker: all in memory; a change goes to the store first and then counts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..cluster.acls import AclStore
from ..errors import TooManyAcls
from .acl import Acl, AclFilter

ACLS_MAX = 10_000


class Acls:
    """Changes come one at a time; observers are called after each."""

    def __init__(self, store: AclStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="stele-acls")
        self._lock = asyncio.Lock()
        # In the order in which they are listed.
        self._acls: dict[Acl, None] = {}
        self._observers: list[Callable[[], None]] = []

    async def open(self) -> None:
        records = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.acls)
        self._acls = dict.fromkeys(map(Acl.of, records))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    def observe(self, observer: Callable[[], None]) -> None:
        self._observers.append(observer)

    def all(self) -> list[Acl]:
        return list(self._acls)

    def find(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that ``wanted`` selects, by resource."""
        found = [acl for acl in self._acls if wanted.selects(acl)]
        return sorted(found, key=lambda acl: acl.record)

    async def add(self, acls: Sequence[Acl]) -> None:
        """Add rules, all or none; those that exist stay as they are. Raises InvalidAcl, TooManyAcls."""
        for acl in acls:
            acl.check()
        async with self._lock:
            new = [acl for acl in dict.fromkeys(acls) if acl not in self._acls]
            if len(self._acls) + len(new) > ACLS_MAX:
                raise TooManyAcls(ACLS_MAX)
            await self._change(new, ())

    async def remove(self, wanted: AclFilter) -> list[Acl]:
        """Remove the rules that ``wanted`` selects, together, and return them."""
        async with self._lock:
            found = self.find(wanted)
            await self._change((), found)
        return found

    async def _change(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        if not added and not removed:
            return
        records = [acl.record for acl in added], [acl.record for acl in removed]
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.change_acls, *records)
        for acl in removed:
            del self._acls[acl]
        self._acls.update(dict.fromkeys(added))
        for observer in self._observers:
            observer()
