"""Member ids by client id."""

from __future__ import annotations


class ClientIds(dict[str, dict[str, None]]):
    """The ids of the members that each client has, so that a look-up looks at no other members."""

    def add(self, client_id: str, member_id: str) -> None:
        self.setdefault(client_id, {})[member_id] = None

    def take(self, client_id: str, member_id: str) -> None:
        ids = self[client_id]
        del ids[member_id]
        if not ids:
            del self[client_id]

    def first(self, client_id: str) -> str | None:
        """Return the id of a member of the client; None if it has none."""
        return next(iter(self.get(client_id, ())), None)
