"""The interface of the store that keeps access rules (ACLs).

Methods block, as those of ``catalog`` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class AclRecord(NamedTuple):
    """One rule, with the numbers of Kafka's protocol."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclStore(Protocol):
    def acls(self) -> list[AclRecord]: ...
    def change_acls(self, added: Sequence[AclRecord], removed: Sequence[AclRecord]) -> None:
        """Add and remove rules together; one that is there already, or is not, changes nothing."""
        ...

    def close(self) -> None: ...
