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
    _check_functions(parser, statement.query)
    tables = parser.get_table_names(statement.query)
    qualified = parser.get_table_names(statement.query, qualified=True)
    return statement.query, sorted(tables), sorted(qualified)


def _check_functions(parser: duckdb.DuckDBPyConnection, query: str) -> None:
    """Refuse functions that are not for statements of users. Raises ``Refused``."""
    row = parser.execute("select json_serialize_sql(?::varchar)", [query]).fetchone()
    try:
        tree = msgspec.json.decode(cast("tuple[str]", row)[0])
    except RecursionError as error:
        raise Refused("the statement is nested too deeply") from error
    if tree["error"]:
        raise Refused(f"the statement cannot be checked ({tree.get('error_message')}); {_SELECT_ONLY}")
    for node in _nodes(tree):
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
