"""Convert a relation of catalog or stream to a ``Table`` that makes events."""

from __future__ import annotations

from .context import RunContext
from .decoding.pgoutput import Relation
from .postgres.catalog import Postgres
from .records.events import Table


def shape_of(relation: Relation, *, keys: tuple[str, ...], context: RunContext) -> Table:
    """Return the table of a relation; ``keys`` are the columns of its identity in order.

    Raises:
        CdcError, Interrupted, SteleClientError
    """
    options = context.options
    topic = options.topic_of(relation.schema, relation.table)
    return Table(
        relation,
        [context.postgres.encoder(column.type_id) for column in relation.columns],
        context.forms.form(relation, topic, keys),
        topic=topic,
        key_columns=keys,
        # Debezium's records have no key where the table has none.
        key_column="" if options.is_debezium else options.key_column,
        with_tombstones=options.tombstones or options.has_record_per_row or options.is_debezium,
        has_record_per_row=options.has_record_per_row,
        is_row_only=options.value == "row",
    )


def keys_of(relation: Relation, postgres: Postgres) -> tuple[str, ...]:
    """Return the key columns at the time of the change, in the order of the catalog."""
    now = postgres.keys(relation.schema, relation.table)
    then = tuple(column.name for column in relation.columns if column.is_key)
    return now if relation.identity == "f" or set(now) == set(then) else then
