"""A file of the data directory is brought to the newest version of its schema, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cluster.sqlite.file import SqliteFailed, SqliteFile
from app.cluster.sqlite.schemas import CATALOG, GROUPS, Schema

FIRST = "CREATE TABLE topics (name TEXT); INSERT INTO topics VALUES ('orders')"
SECOND = "ALTER TABLE topics ADD COLUMN partitions INTEGER NOT NULL DEFAULT 1; INSERT INTO topics VALUES ('users', 2)"


def contents(path: Path, schema: Schema) -> tuple[int, list[tuple[object, ...]]]:
    file = SqliteFile(path, schema)
    (version,) = file.connection.execute("PRAGMA user_version").fetchone()
    rows = file.connection.execute("SELECT * FROM topics").fetchall()
    file.close()
    return version, rows


def test_a_new_file_gets_all_scripts(tmp_path: Path) -> None:
    schema = Schema(3, (FIRST, SECOND))
    assert contents(tmp_path / "new", schema) == (4, [("orders", 1), ("users", 2)])
    assert contents(tmp_path / "new", schema) == (4, [("orders", 1), ("users", 2)])


def test_a_file_of_an_earlier_release_gets_the_scripts_that_it_lacks(tmp_path: Path) -> None:
    assert contents(tmp_path / "old", Schema(3, (FIRST,))) == (3, [("orders",)])
    assert contents(tmp_path / "old", Schema(3, (FIRST, SECOND))) == (4, [("orders", 1), ("users", 2)])


def test_a_script_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    contents(tmp_path / "old", Schema(3, (FIRST,)))
    with pytest.raises(SqliteFailed, match="no_such_table"):
        SqliteFile(tmp_path / "old", Schema(3, (FIRST, SECOND, "SELECT * FROM no_such_table")))
    assert contents(tmp_path / "old", Schema(3, (FIRST,))) == (3, [("orders",)])


@pytest.mark.parametrize("schema", [CATALOG, GROUPS])
def test_the_schemas_of_the_broker_make_a_file(tmp_path: Path, schema: Schema) -> None:
    file = SqliteFile(tmp_path / "new", schema)
    assert file.connection.execute("PRAGMA user_version").fetchone() == (schema.newest,)
    file.close()
