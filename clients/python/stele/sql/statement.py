"""Decide what a statement may be, and find which tables it names.

DuckDB parses it: its own parser knows all that its own executor would run. Only a SELECT passes, in any notation of it
(``FROM t``, ``VALUES``, ``DESCRIBE``), with table functions of a list. The list is not what keeps a statement from
files: a database without access to them does (``worker``). It keeps away what shows or changes the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

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
# Rows that are held until it is known that there are enough of them.
_NEWEST_MAX = 1000
_SYSTEM = frozenset(("information_schema", "pg_catalog", "system", "temp"))
_SELECT_ONLY = "only SELECT can be run here: it reads topics and changes nothing"


class Refused(Exception):
    """The statement cannot run; the message says why, and what to write instead."""


class Checked(NamedTuple):
    """A statement that may run: the tables it names, and these with what precedes their names.

    ``newest``: it wants so many rows, those with the highest offsets that it finds in its only table.
    """

    query: str
    tables: list[str]
    qualified: list[str]
    newest: int | None


def checked(parser: duckdb.DuckDBPyConnection, sql: str) -> Checked:
    """Return the one statement in ``sql``.

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
    query = statement.query
    tree = _tree(parser, query)
    paths, own = _named(tree)
    named = {path[-1] for path in paths}
    tables = _tables(parser, query, named, own) if own else named
    qualified = {".".join(path) for path in paths if path[-1] in tables}
    return Checked(query, sorted(tables), sorted(qualified), _newest(tree))


def _tables(parser: duckdb.DuckDBPyConnection, query: str, named: set[str], own: set[str]) -> set[str]:
    """Return which of the names are those of tables, of a statement with names of WITH."""
    parser.begin()
    try:
        # DuckDB tells tables from names of WITH while it binds columns, which some joins need. It forgets those of
        # tables meanwhile, but not those of views.
        for name in sorted(named):
            marked = quoted(_MARK + name)
            parser.execute(f"create table if not exists {marked} (x integer)")
            parser.execute(f"create view if not exists {quoted(name)} as select {_COLUMNS} from {marked}")  # noqa: S608
        return {name.removeprefix(_MARK) for name in parser.get_table_names(query)}
    except duckdb.BinderException:
        # It needs columns that values have, as USING does. What is taken for a table by mistake, or is not, does not exist
        # when the statement runs.
        return named - own
    finally:
        parser.rollback()


def quoted(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def _tree(parser: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    row = parser.execute("select json_serialize_sql(?::varchar)", [query]).fetchone()
    try:
        tree = msgspec.json.decode(cast("tuple[str]", row)[0])
    except RecursionError as error:
        raise Refused("the statement is nested too deeply") from error
    if tree["error"]:
        raise Refused(f"the statement cannot be checked ({tree.get('error_message')}); {_SELECT_ONLY}")
    return tree


def _named(tree: dict[str, Any]) -> tuple[set[tuple[str, ...]], set[str]]:
    """Return all names that may be tables, and those of WITH; refuse functions that are not for statements of users.

    Raises ``Refused``.
    """
    named: set[tuple[str, ...]] = set()
    own: set[str] = set()
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            # Views of the process; without these names a topic is meant.
            where = {str(node.get(part) or "").lower() for part in ("catalog_name", "schema_name")}
            if where & _SYSTEM:
                raise Refused("tables of the system cannot be read here; a list of topics has GET /v1/topics")
            named.add(tuple(node["qualified_name"]["path"]))
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
    names = {path[-1] for path in named}
    if len({name.lower() for name in names}) < len(names):
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


def _newest(tree: dict[str, Any]) -> int | None:
    """Return the limit of a statement that takes single rows of one table, those with the highest offsets first.

    Of such a statement, the rows from any offset on are the whole answer if they reach the limit: no other row could come
    before one of them.
    """
    match tree["statements"]:
        case [
            {
                "node": {
                    "type": "SELECT_NODE",
                    "modifiers": [
                        {
                            "type": "ORDER_MODIFIER",
                            "orders": [
                                {"type": "DESCENDING", "expression": {"column_names": ["_offset"]}},
                                *_,
                            ],
                        },
                        {
                            "type": "LIMIT_MODIFIER",
                            "limit_type": "ROW_COUNT",
                            "limit": {"literal": {"kind": "INTEGER", "text": text}},
                            "offset": None,
                        },
                    ],
                    "from_table": {"type": "BASE_TABLE", "sample": None, "column_name_alias": []},
                    "group_expressions": [],
                    "group_sets": [],
                    "aggregate_handling": "STANDARD_HANDLING",
                    "having": None,
                    "qualify": None,
                    "sample": None,
                }
            }
        ] if 0 < int(text) <= _NEWEST_MAX:
            # No other table, no window over all rows, and no expression that has the name of the column.
            nodes = list(_nodes(tree))
            selects = sum(node.get("type") == "SELECT_NODE" for node in nodes)
            if selects == 1 and not any(map(_may_hide_offset, nodes)):
                return int(text)
        case _:
            pass
    return None


def _may_hide_offset(node: dict[str, Any]) -> bool:
    return (
        node.get("class") == "WINDOW"
        or str(node.get("alias", "")).lower() == "_offset"
        or bool(node.get("replace_list") or node.get("rename_list") or node.get("columns"))
    )
