"""Decide what a statement may be, and find which tables it names.

DuckDB parses it: its own parser knows all that its own executor would run. Only a SELECT passes, in any notation of it
(``FROM t``, ``VALUES``, ``DESCRIBE``), with table functions of a list. The list is not what keeps a statement from
files: a database without access to them does (``worker``). It keeps away what shows or changes the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import duckdb
import msgspec

# They make rows of their arguments alone.
TABLE_FUNCTIONS = frozenset(
    (
        "generate_series",
        "json_each",
        "json_tree",
        "pg_timezone_names",
        "range",
        "repeat",
        "repeat_row",
        "unnest",
    )
)
# They show or change the state of the process.
_REFUSED_FUNCTIONS = frozenset(("current_setting", "getvariable", "nextval", "currval", "write_log"))
# The columns of every topic, as the views of ``worker`` have them.
_COLUMNS = (
    "null::integer as _partition, null::bigint as _offset, null::timestamptz as _timestamp, null::varchar as _key, "
    'null::struct("key" varchar, "value" varchar)[] as _headers, null::varchar as value'
)
# No topic has spaces in its name.
_MARK = "the topic "
_TABLES_MAX = 100
_SYSTEM = frozenset(("information_schema", "pg_catalog", "system", "temp"))
_SELECT_ONLY = "only SELECT can be run here: it reads topics and changes nothing"


class Refused(Exception):
    """The statement cannot run; the message says why, and what to write instead."""


def checked(parser: duckdb.DuckDBPyConnection, sql: str) -> tuple[str, list[str], list[str]]:
    """Return the one statement in ``sql``, the tables it names, and these with what precedes their names.

    ``parser`` is a database without anything; nothing is executed in it but functions of this module.

    Raises ``Refused``.
    """
    try:
        statements = parser.extract_statements(sql)
    except ValueError as error:
        # A kind of statement that the module does not name.
        raise Refused(_SELECT_ONLY) from error
    if len(statements) != 1:
        raise Refused(
            f"there are {len(statements)} statements; send them one by one"
            if statements
            else "there is no statement"
        )
    (statement,) = statements
    if statement.type is not duckdb.StatementType.SELECT:
        raise Refused(f"this is a statement {statement.type.name}, but {_SELECT_ONLY}")
    if statement.named_parameters:
        raise Refused("the statement has parameters; write the values in their place")
    named, own = _named(parser, statement.query)
    parser.begin()
    try:
        # DuckDB tells tables from names of WITH while it binds columns, which some joins need. It forgets those of
        # tables meanwhile, but not those of views.
        for name in sorted(named):
            marked = quoted(_MARK + name)
            parser.execute(f"create table if not exists {marked} (x integer)")
            parser.execute(f"create view if not exists {quoted(name)} as select {_COLUMNS} from {marked}")  # noqa: S608
        tables = {name.removeprefix(_MARK) for name in parser.get_table_names(statement.query)}
        qualified = parser.get_table_names(statement.query, qualified=True)
    except duckdb.BinderException:
        # It needs columns that values have, as USING does. What is taken for a table by mistake, or is not, does not exist
        # when the statement runs.
        tables = qualified = named - own
    finally:
        parser.rollback()
    return statement.query, sorted(tables), sorted(qualified)


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _named(parser: duckdb.DuckDBPyConnection, query: str) -> tuple[set[str], set[str]]:
    """Return all names that may be tables, and those of WITH; refuse functions that are not for statements of users.

    Raises ``Refused``.
    """
    named: set[str] = set()
    own: set[str] = set()
    row = parser.execute("select json_serialize_sql(?::varchar)", [query]).fetchone()
    try:
        tree = msgspec.json.decode(cast("tuple[str]", row)[0])
    except RecursionError as error:
        raise Refused("the statement is nested too deeply") from error
    if tree["error"]:
        raise Refused(f"the statement cannot be checked ({tree.get('error_message')}); {_SELECT_ONLY}")
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            # Views of the process; without these names a topic is meant.
            where = {str(node.get(part) or "").lower() for part in ("catalog_name", "schema_name")}
            if where & _SYSTEM:
                raise Refused("tables of the system cannot be read here; a list of topics has GET /v1/topics")
            named.add(str(node["table_name"]))
            if len(named) > _TABLES_MAX:
                raise Refused(f"the statement names more than {_TABLES_MAX} tables")
        if "cte_map" in node:
            own.update(str(entry["key"]) for entry in node["cte_map"]["map"])
        name = str(node.get("function_name", "")).lower()
        if name in _REFUSED_FUNCTIONS:
            raise Refused(f"the function {name} cannot be used here")
        if node.get("type") == "TABLE_FUNCTION":
            function = cast("dict[str, Any]", node["function"])
            name = str(function.get("function_name", "")).lower()
            if name not in TABLE_FUNCTIONS:
                raise Refused(
                    f"the table function {name} cannot be used here: statements read topics, neither files, the network "
                    f"nor the process; there are {', '.join(sorted(TABLE_FUNCTIONS))}"
                )
    if len({name.lower() for name in named}) < len(named):
        raise Refused(
            "the statement has names that differ in upper and lower case alone, which SQL cannot tell apart"
        )
    return named, own


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield all objects of a tree, without recursion."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            found = cast("dict[str, Any]", node)
            yield found
            left.extend(found.values())
        elif isinstance(node, list):
            left.extend(cast("list[Any]", node))
