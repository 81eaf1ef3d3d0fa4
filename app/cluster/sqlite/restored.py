"""Prepares the files of the catalog and of the groups after a restore from a replica.

They are as of an earlier moment, so they have forgotten what the broker gave out after it. None of that may be given
out again, because a request of a producer that began later may still arrive (ADR-0071 has the same danger):

- The next producer id is far higher, and by how much depends on the time, so another restore of the same moment gives
  out others.
- A transactional id is at an epoch that no producer ever has. So all its producers are fenced, an open transaction is
  aborted by the recovery of the broker, and InitProducerId gives out another producer id.
- The next version of a named producer skips epochs. The version that was begun goes on: it knows its records.

To prepare the same files again is harmless.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import LiteralString

from ..catalog import TopicRecord
from ..database import SqlTransaction, uuid_of
from .catalog import MIGRATIONS as CATALOG_MIGRATIONS
from .file import Migration, SqliteFailed, SqliteFile
from .group_migrations import MIGRATIONS as GROUP_MIGRATIONS

# More producer ids than a broker gives out between two cuts, and in a ms.
_PRODUCER_IDS_SKIPPED = 2**32
_PRODUCER_IDS_PER_MS = 2**8
# 2025-01-01: the time is counted from here.
_EPOCH_2025_MS = 1_735_689_600_000
# More versions than a named producer begins between two cuts; with what is added at random, restores of the same moment
# differ. The CDC connector takes so large a step for a restore, and smaller ones not (``stele.cdc.gaps``).
EPOCHS_SKIPPED = 2_000
_EPOCHS_VARIED = 1_000
# Above each epoch that a producer gets (``app.transactions.transaction``).
_LAST_EPOCH = 2**15 - 1

# Of groups; the outcomes of transactions stay, because markers may be missing in the logs.
_GROUP_TABLES: tuple[LiteralString, ...] = (
    "groups",
    "consumer_groups",
    "consumer_members",
    "group_owners",
    "group_offsets",
    "group_pending_offsets",
    "share_partitions",
    "transactional_ids",
    "transaction_answers",
)


class DamagedStore(Exception):
    """SQLite finds a file damaged, or a newer release wrote it."""


def prepare_catalog(path: Path, *, now_ms: int, only: Collection[str] | None = None) -> list[TopicRecord]:
    """Prepare the catalog, and return its topics; the file is checked, but not synced.

    With ``only``, topics with other names are deleted.

    Raises:
        DamagedStore: see there.
    """
    margin = _PRODUCER_IDS_SKIPPED + max(0, now_ms - _EPOCH_2025_MS) * _PRODUCER_IDS_PER_MS
    file = _opened(path, CATALOG_MIGRATIONS)
    try:
        with file.transaction() as sql:
            sql.execute(
                "INSERT INTO numbers VALUES ('next_producer_id', %s) ON CONFLICT (name) DO UPDATE"
                " SET value = CAST(CAST(numbers.value AS bigint) + %s AS text)",
                (str(1 + margin), margin),
            )
            sql.execute(
                "UPDATE named_producers SET forgotten_epochs = max(forgotten_epochs, %s)",
                (EPOCHS_SKIPPED + secrets.randbelow(_EPOCHS_VARIED),),
            )
            topics = _topics(sql)
            if only is not None:
                others = [(topic.topic_id,) for topic in topics if topic.name not in only]
                sql.executemany("DELETE FROM topics WHERE topic_id = %s", others)
                topics = [topic for topic in topics if topic.name in only]
        return topics
    except (SqliteFailed, sqlite3.Error) as error:
        raise DamagedStore(f"{path.name} is damaged: {error}") from error
    finally:
        file.close()


def prepare_groups(path: Path, *, with_groups: bool = True) -> None:
    """Prepare the store of groups; without groups only the outcomes of transactions stay. As ``prepare_catalog``."""
    file = _opened(path, GROUP_MIGRATIONS)
    try:
        with file.transaction() as sql:
            if not with_groups:
                for table in _GROUP_TABLES:
                    sql.execute(f"DELETE FROM {table}")
            # The state is one in which a request to end a transaction is refused: none may be told that one was
            # committed of which the cut knows nothing.
            sql.execute(
                "UPDATE transactional_ids SET epoch = %s, previous_producer_id = -1, last_epoch = -1, state = 'Empty',"
                " started_at_ms = -1, partitions = '[]', groups = '[]'",
                (_LAST_EPOCH,),
            )
    except (SqliteFailed, sqlite3.Error) as error:
        raise DamagedStore(f"{path.name} is damaged: {error}") from error
    finally:
        file.close()


def _topics(sql: SqlTransaction) -> list[TopicRecord]:
    rows = sql.execute("SELECT name, topic_id, partitions, configs FROM topics ORDER BY name").fetchall()
    return [
        TopicRecord(name=name, topic_id=uuid_of(topic_id), partitions=partitions, configs=json.loads(configs))
        for name, topic_id, partitions, configs in rows
    ]


def _opened(path: Path, migrations: Sequence[Migration]) -> SqliteFile:
    """Check a file, and bring it up to this release."""
    try:
        file = SqliteFile(path, migrations)
    except SqliteFailed as error:
        raise DamagedStore(f"{path.name} cannot be used: {error}") from error
    try:
        (result,) = file.connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        file.close()
        raise DamagedStore(f"{path.name} is damaged: {error}") from error
    if result != "ok":
        file.close()
        raise DamagedStore(f"{path.name} is damaged: {result}")
    return file
