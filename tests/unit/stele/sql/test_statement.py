"""What is known of a statement before it runs."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from stele.sql.statement import checked


@pytest.fixture(scope="module")
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as database:
        yield database


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select 1", []),
        ('from orders join "eu.orders-1" using (_offset)', ["eu.orders-1", "orders"]),
        ("with a as (from orders) select * from a", ["orders"]),
        ("with a as (from a) select * from a", ["a"]),
        ("with a as (select 1) select (select count(*) from b), * from a", ["b"]),
        ("select * from x.y.orders where exists (from payments)", ["orders", "payments"]),
        ("describe orders", ["orders"]),
    ],
)
def test_tables_that_a_statement_names(
    parser: duckdb.DuckDBPyConnection, sql: str, tables: list[str]
) -> None:
    assert checked(parser, sql).tables == tables


def test_names_with_what_precedes_them(parser: duckdb.DuckDBPyConnection) -> None:
    assert checked(parser, 'from x.y.orders, "a b".c, d').qualified == ["a b.c", "d", "x.y.orders"]


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("select * from t order by _offset desc limit 10", 10),
        ("from \"a.b\" as x where _key = 'k' order by _OFFSET desc, _partition limit 1", None),
        ("from t as x where _key = 'k' order by _offset desc, _partition limit 1", 1),
        ("select value, _offset + 1 as next from t order by _offset desc nulls last limit 1000", 1000),
        ("select * from t order by _offset desc limit 1001", None),
        ("select * from t order by _offset desc limit 0", None),
        ("select * from t order by _offset desc limit 10 offset 5", None),
        ("select * from t order by _offset desc limit 10%", None),
        ("select * from t order by _offset desc", None),
        ("select * from t order by _offset limit 10", None),
        ("select * from t order by _timestamp desc limit 10", None),
        ("select * from t order by _partition, _offset desc limit 10", None),
        ("select * from t order by -_offset desc limit 10", None),
        ("select -_offset as _offset from t order by _offset desc limit 10", None),
        ("select * replace (-_offset as _offset) from t order by _offset desc limit 10", None),
        ("select * rename (_partition as _offset) from t order by _offset desc limit 10", None),
        ("select columns('_(p.*)') as _offset from t order by _offset desc limit 10", None),
        ("select * from t as x(_offset) order by _offset desc limit 10", None),
        ("select distinct _offset from t order by _offset desc limit 10", None),
        ("select distinct on (_key) * from t order by _offset desc limit 10", None),
        ("select _offset from t group by rollup (_offset) order by _offset desc limit 10", None),
        ("select _offset, count(*) from t group by all order by _offset desc limit 10", None),
        ("select *, count(*) over () from t order by _offset desc limit 10", None),
        ("select * from t qualify row_number() over () > 1 order by _offset desc limit 10", None),
        ("select *, (select max(_offset) from t) from t order by _offset desc limit 10", None),
        ("select * from t where _offset not in (select 1) order by _offset desc limit 10", None),
        ("select * from t, t as u order by _offset desc limit 10", None),
        ("select * from t tablesample 10% order by _offset desc limit 10", None),
        ("select * from t using sample 5 order by _offset desc limit 10", None),
        ("with u as (from t) select * from u order by _offset desc limit 10", None),
        ("select * from t union all (select * from t) order by _offset desc limit 10", None),
        ("select * from (from t) order by _offset desc limit 10", None),
    ],
)
def test_statements_that_want_the_newest_rows(
    parser: duckdb.DuckDBPyConnection, sql: str, rows: int | None
) -> None:
    assert checked(parser, sql).newest == rows
