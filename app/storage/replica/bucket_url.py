"""Opens the bucket that a URL names, and explains what is wrong with one."""

from __future__ import annotations

from ..setup_problems import InvalidStorage
from ..shared.store.obstore import ObstoreStore
from ..shared.store.urls import open_object_store


def open_bucket(url: str) -> ObstoreStore:
    """Return the store that ``url`` names.

    Raises:
        InvalidStorage: it is no such URL, or there are no credentials.
    """
    try:
        return open_object_store(url)
    except ValueError as error:
        raise InvalidStorage(str(error)) from error
