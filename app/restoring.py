"""Prepares a data directory from a replica, and looks at replicas, for the start of a broker and for commands."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .clock import SystemClock
from .cluster.sqlite.restored import DamagedStore, prepare_catalog, prepare_groups
from .composition import CATALOG, GROUPS
from .settings import Settings
from .storage.disk.files import RealFiles
from .storage.setup_problems import InvalidStorage, store_problem

if TYPE_CHECKING:
    from .storage.replica.restore import Restored
    from .storage.replica.restore_plan import CatalogTopic
    from .storage.replica.verify import Summary, Verified
    from .storage.shared.store.object_store import ConditionalStore

logger = logging.getLogger(__name__)

# What a broker keeps in stores.
STORES = (CATALOG, GROUPS)
_LOG_PROGRESS_S = 10.0

Advance = Callable[[int, int], object]


async def restore(
    url: str,
    data_dir: Path,
    *,
    advance: Advance,
    to_ms: int | None = None,
    topics: Collection[str] | None = None,
) -> Restored:
    """Make a data directory, an absolute path, from the replica at ``url``; see ``storage.replica.restore``.

    Raises:
        InvalidStorage: it could not be restored; the text says why.
    """
    with _explained(url):
        from .storage.replica.restore import RestoreOptions
        from .storage.replica.restore import restore as restore_from

        now_ms = SystemClock().now_ms()
        options = RestoreOptions(
            stores=STORES,
            prepare=partial(_prepare_stores, now_ms),
            advance=advance,
            now_ms=now_ms,
            to_ms=to_ms,
            topics=topics,
        )
        return await restore_from(await _opened(url), RealFiles(), data_dir, options)


async def summarize(url: str) -> Summary:
    """Return what can be restored from ``url``. Raises ``InvalidStorage``."""
    with _explained(url):
        from .storage.replica.verify import summarize as summarize_store

        return await summarize_store(await _opened(url))


async def verify(url: str, *, advance: Advance, to_ms: int | None = None) -> Verified:
    """Read all that a restore would read. Raises ``InvalidStorage``."""
    with _explained(url):
        from .storage.replica.verify import verify as verify_store

        return await verify_store(await _opened(url), STORES, to_ms=to_ms, advance=advance)


async def prepare_directory(settings: Settings) -> None:
    """Restore an empty data directory, if the settings ask for that.

    Raises:
        InvalidStorage: that failed, or an earlier restore was interrupted: the broker must not start empty.
    """
    from .storage.replica.staging import has_data, is_interrupted

    path = settings.data_dir.absolute()
    url = settings.restore_from
    if url is None:
        if is_interrupted(path):
            raise InvalidStorage(
                f"a restore into {path} was interrupted: run stele restore again, or start with --restore-if-empty"
            )
        return
    if await asyncio.to_thread(has_data, RealFiles(), path):
        return
    with _explained(url):
        await _restore_at_start(url, path)


async def _restore_at_start(url: str, path: Path) -> None:
    from .storage.replica.chain import NoCut
    from .storage.replica.moments import shown_time

    logger.info("%s is empty: it is restored from %s", path, url)
    next_s = time.monotonic() + _LOG_PROGRESS_S

    def advance(done: int, total: int) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _LOG_PROGRESS_S
            logger.info("%d of %d MB are restored", done // 1_000_000, total // 1_000_000)

    try:
        restored = await restore(url, path, advance=advance)
    except InvalidStorage as error:
        if not isinstance(error.__cause__, NoCut):
            raise InvalidStorage(f"the broker does not start, because {path} is empty: {error}") from error
        logger.warning("the broker starts empty: %s", error)
        return
    logger.info(
        "%s is restored as of %s: %d topics, %d partitions, %d MB",
        path,
        shown_time(restored.time_ms),
        restored.topics,
        restored.partitions,
        restored.size // 1_000_000,
    )


def _prepare_stores(now_ms: int, directory: Path, only: Collection[str] | None) -> list[CatalogTopic]:
    from .storage.replica.cut import CorruptCut
    from .storage.replica.restore_plan import CatalogTopic

    try:
        topics = prepare_catalog(directory / CATALOG, now_ms=now_ms, only=only)
        prepare_groups(directory / GROUPS, with_groups=only is None)
    except DamagedStore as error:
        raise CorruptCut(str(error)) from error
    return [CatalogTopic(str(topic.topic_id), topic.name, topic.partitions) for topic in topics]


async def _opened(url: str) -> ConditionalStore:
    from .storage.replica.bucket_url import open_bucket

    parts = urlsplit(url)
    if parts.scheme == "file" and not await asyncio.to_thread(Path(parts.path).is_dir):
        # To open it would make it.
        from .storage.replica.chain import NoCut

        raise NoCut(f"there is no directory {parts.path}")
    return await asyncio.to_thread(open_bucket, url)


@contextmanager
def _explained(url: str) -> Generator[None]:
    """Give the errors of a bucket, of what is in it and of the disk one type, with texts for people."""
    from .storage.replica.chain import NoCut
    from .storage.replica.cut import CorruptCut
    from .storage.replica.restore import RestoreFailed
    from .storage.replica.staging import NotEmpty
    from .storage.shared.store.object_store import ObjectStoreError

    try:
        yield
    except ImportError as error:
        raise InvalidStorage(
            f"a replica needs the extra bucket ({error}): pip install 'stele-broker[bucket]'"
        ) from error
    except (NoCut, CorruptCut, RestoreFailed, NotEmpty) as error:
        raise InvalidStorage(str(error)) from error
    except ObjectStoreError as error:
        raise InvalidStorage(store_problem(url, str(error), named_by="the URL").text) from error
    except OSError as error:
        reason = ": ".join(map(str, filter(None, (error.strerror or error, error.filename))))
        raise InvalidStorage(f"the disk failed: {reason}") from error
