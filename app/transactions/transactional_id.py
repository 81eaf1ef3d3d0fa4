"""Validates transactional ids."""

from __future__ import annotations

from ..errors import InvalidRequest

# Kafka limits an id by the size of a string only; ids this long are mistakes.
TRANSACTIONAL_ID_LENGTH_MAX = 1024


def check_transactional_id(transactional_id: str) -> None:
    """Raises ``InvalidRequest``."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty; set one, or none at all")
    if len(transactional_id) > TRANSACTIONAL_ID_LENGTH_MAX:
        raise InvalidRequest(
            f"the transactional id has {len(transactional_id)} characters; it must have at most "
            f"{TRANSACTIONAL_ID_LENGTH_MAX}"
        )
