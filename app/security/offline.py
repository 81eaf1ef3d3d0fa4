"""Users, API keys and access rules in the directory of a stopped broker.

The command line changes them there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..clock import SystemClock
from ..cluster.acls import AclStore
from ..cluster.credentials import ApiKeyRecord, CredentialStore
from ..cluster.sqlite.catalog import CatalogDatabase
from ..errors import DataDirLocked
from ..storage.disk.files import RealFiles
from ..storage.disk.whole_files import read_file
from ..storage.logs.data_dir import LOCK
from .acl_text import acl_of, document_of, filter_of
from .acls import Acls
from .credentials import Credentials

_T = TypeVar("_T")

CATALOG = "metadata.sqlite"


def add_user(data_dir: Path, user: str, password: str) -> None:
    """Create a user, and the data directory if there is none. Raises SteleError."""
    _run(data_dir, lambda credentials: credentials.add_user(user, password), make=True)


def set_password(data_dir: Path, user: str, password: str) -> None:
    """Replace the password of a user. Raises SteleError."""
    _run(data_dir, lambda credentials: credentials.set_password(user, password))


def delete_user(data_dir: Path, user: str) -> None:
    """Delete a user. Raises SteleError."""
    _run(data_dir, lambda credentials: credentials.delete_user(user))


def users(data_dir: Path) -> dict[str, list[str]]:
    """Return the mechanisms of each user. Raises SteleError."""

    async def work(credentials: Credentials) -> dict[str, list[str]]:
        return {
            user: [credential.mechanism for credential in stored]
            for user, stored in credentials.users().items()
        }

    return _run(data_dir, work)


def create_key(data_dir: Path, user: str, description: str, lifetime_ms: int | None) -> str:
    """Create an API key and return its token. Raises SteleError."""
    now_ms = SystemClock().now_ms()

    async def work(credentials: Credentials) -> str:
        expires_at_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        made = await credentials.create_key(
            user, description=description, now_ms=now_ms, expires_at_ms=expires_at_ms
        )
        return made.token

    return _run(data_dir, work, make=True)


def delete_key(data_dir: Path, key_id: str) -> None:
    """Delete an API key. Raises SteleError."""
    _run(data_dir, lambda credentials: credentials.delete_key(key_id))


def api_keys(data_dir: Path) -> list[ApiKeyRecord]:
    """Return all API keys, without secrets. Raises SteleError."""

    async def work(credentials: Credentials) -> list[ApiKeyRecord]:
        return credentials.api_keys()

    return _run(data_dir, work)


def acls(data_dir: Path, selection: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the access rules that ``selection`` selects. Raises SteleError."""

    async def work(rules: Acls) -> list[dict[str, str]]:
        return [document_of(acl) for acl in await rules.find(filter_of(selection))]

    return _run_acls(data_dir, work)


def add_acls(data_dir: Path, documents: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Add access rules, all or none, and return them. Raises SteleError."""

    async def work(rules: Acls) -> list[dict[str, str]]:
        added = [acl_of(document) for document in documents]
        await rules.add(added)
        return [document_of(acl) for acl in added]

    return _run_acls(data_dir, work, make=True)


def remove_acls(data_dir: Path, selection: Mapping[str, str]) -> list[dict[str, str]]:
    """Remove the access rules that ``selection`` selects, and return them.

    Raises SteleError.
    """

    async def work(rules: Acls) -> list[dict[str, str]]:
        return [document_of(acl) for acl in await rules.remove(filter_of(selection))]

    return _run_acls(data_dir, work)


def _run(data_dir: Path, work: Callable[[Credentials], Awaitable[_T]], *, make: bool = False) -> _T:
    async def run() -> _T:
        credentials = Credentials(CredentialStore(CatalogDatabase(data_dir / CATALOG)))
        await credentials.open()
        try:
            return await work(credentials)
        finally:
            await credentials.close()

    return _run_locked(data_dir, run, make=make)


def _run_acls(data_dir: Path, work: Callable[[Acls], Awaitable[_T]], *, make: bool = False) -> _T:
    async def run() -> _T:
        rules = Acls(AclStore(CatalogDatabase(data_dir / CATALOG)))
        await rules.open()
        try:
            return await work(rules)
        finally:
            await rules.close()

    return _run_locked(data_dir, run, make=make)


def _run_locked(data_dir: Path, run: Callable[[], Coroutine[Any, Any, _T]], *, make: bool) -> _T:
    """Do ``run`` while no broker has the directory.

    A running broker would not notice the change.

    Raises:
        FileNotFoundError: there is no data directory.
        DataDirLocked: a broker has it.
    """
    files = RealFiles()
    if make:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        files.make_dir(data_dir)
    elif not (data_dir / CATALOG).exists():
        raise FileNotFoundError(f"{data_dir} is not the data directory of a broker")
    try:
        lock = files.lock(data_dir / LOCK)
    except BlockingIOError as error:
        owner = (read_file(files, data_dir / LOCK) or b"").decode(errors="replace").strip()
        raise DataDirLocked(data_dir, f" (process {owner})" if owner else "") from error
    try:
        return asyncio.run(run())
    finally:
        lock.release()
