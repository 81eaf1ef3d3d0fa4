"""The numbers of the migrations are the versions of the schema."""

from __future__ import annotations

from pathlib import Path

MIGRATIONS = Path(__file__).parents[3] / "app/postgres/migrations"


def test_the_numbers_have_no_gap() -> None:
    # A database of version 3 gets the fourth file next, whatever its number is.
    numbers = [int(path.name[:4]) for path in sorted(MIGRATIONS.glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))
