"""Named producers in the embedded catalog: the same version, the same producer; a newer one, a newer epoch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.cluster.catalog import USE_STORED_MS, Catalog
from app.cluster.sqlite.catalog import SqliteCatalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    opened = SqliteCatalog(tmp_path / "catalog.db")
    yield opened
    opened.close()


def begin(
    catalog: Catalog, version: int, *, fresh_id: int, name: str = "job", now_ms: int = 0
) -> tuple[int, int, int, bool]:
    found = catalog.begin_producer_version(name, version, fresh_id=fresh_id, now_ms=now_ms)
    return found.version, found.producer_id, found.epoch, found.is_resumed


def test_a_version_that_is_begun_again_has_the_same_producer(catalog: SqliteCatalog) -> None:
    assert begin(catalog, 5, fresh_id=1) == (5, 1, 0, False)
    assert begin(catalog, 5, fresh_id=2) == (5, 1, 0, True)
    assert begin(catalog, 5, fresh_id=3, name="other") == (5, 3, 0, False)


def test_a_newer_version_raises_the_epoch_and_an_older_one_changes_nothing(catalog: SqliteCatalog) -> None:
    begin(catalog, 5, fresh_id=1)
    assert begin(catalog, 9, fresh_id=2) == (9, 1, 1, False)
    assert begin(catalog, 5, fresh_id=3) == (9, 1, 1, True)
    assert begin(catalog, 9, fresh_id=4) == (9, 1, 1, True)


def test_when_the_epochs_are_used_up_another_producer_begins(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = SqliteCatalog(path)
    begin(catalog, 5, fresh_id=1)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE named_producers SET epoch = ?", (2**15 - 2,))
    assert begin(catalog, 6, fresh_id=2) == (6, 1, 2**15 - 1, False)
    assert begin(catalog, 7, fresh_id=77) == (7, 77, 0, False)
    catalog.close()


def test_named_producers_survive_a_restart(tmp_path: Path) -> None:
    first = SqliteCatalog(tmp_path / "catalog.db")
    begin(first, 5, fresh_id=1)
    first.close()
    second = SqliteCatalog(tmp_path / "catalog.db")
    assert begin(second, 5, fresh_id=2) == (5, 1, 0, True)
    second.close()


def forget(catalog: Catalog, before_ms: int, **last_uses: int) -> list[int]:
    uses = {int(name.removeprefix("of_")): used_ms for name, used_ms in last_uses.items()}
    return catalog.forget_named_producers(now_ms=before_ms + 10, kept_ms=10, last_uses=uses)


def test_the_time_of_a_version_is_that_of_its_beginning_and_old_ones_are_forgotten(
    catalog: SqliteCatalog,
) -> None:
    begin(catalog, 5, fresh_id=1, now_ms=1_000)
    again = catalog.begin_producer_version("job", 5, fresh_id=2, now_ms=9_000)
    assert again.begun_at_ms == 1_000
    assert forget(catalog, 1_000) == []
    assert begin(catalog, 5, fresh_id=3)[3] is True
    assert forget(catalog, 1_001) == [1]
    assert begin(catalog, 5, fresh_id=4) == (5, 4, 0, False)


def test_the_last_batch_counts_and_is_stored_when_it_is_a_day_newer(catalog: SqliteCatalog) -> None:
    begin(catalog, 5, fresh_id=1, now_ms=1_000)
    assert forget(catalog, 5_000, of_1=5_000) == []
    # It was less than a day newer, so it was not stored.
    later_ms = 1_000 + USE_STORED_MS
    assert forget(catalog, 1_000) == []
    assert forget(catalog, later_ms, of_1=later_ms) == []
    assert forget(catalog, later_ms) == []
    assert forget(catalog, later_ms + 1, of_2=later_ms + 1) == [1]


def test_names_of_an_earlier_release_count_as_used_now(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    first = SqliteCatalog(path)
    begin(first, 5, fresh_id=1, now_ms=1_000)
    first.close()
    database = sqlite3.connect(path)
    database.executescript(
        "DROP TABLE deleted_topics; ALTER TABLE named_producers DROP COLUMN used_at_ms;"
        "ALTER TABLE named_producers DROP COLUMN forgotten_epochs;"
        "ALTER TABLE scram_credentials RENAME COLUMN username TO user; PRAGMA user_version = 5;"
    )
    database.close()
    second = SqliteCatalog(path)
    assert forget(second, 1_000_000_000_000) == []
    assert begin(second, 5, fresh_id=2) == (5, 1, 0, True)
    second.close()


def test_a_catalog_of_the_release_before_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    SqliteCatalog(path).close()
    database = sqlite3.connect(path)
    database.executescript(
        "DROP TABLE acls; DROP TABLE api_keys; DROP TABLE scram_credentials; DROP TABLE configs; "
        "DROP TABLE named_producers; DROP TABLE deleted_topics; PRAGMA user_version = 1;"
    )
    database.close()
    opened = SqliteCatalog(path)
    assert begin(opened, 0, fresh_id=1) == (0, 1, 0, False)
    opened.close()
