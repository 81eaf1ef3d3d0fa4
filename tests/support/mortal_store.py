"""A store of groups whose process can be killed: from then on nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.cluster.group_store import StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import GroupStoreFailed


class MortalStore(SqliteGroupStore):
    is_dead = False

    def write(self, changes: Sequence[StoreChange]) -> None:
        if self.is_dead:
            raise GroupStoreFailed(Path("groups.sqlite"), "the process is dead")
        super().write(changes)
