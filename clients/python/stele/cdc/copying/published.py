"""Tracks the publication of the tables, and whether it was interrupted.

pgoutput filters each change by the publication as it was at the time of the change. So a
publication that leaves a table out, or that publishes less of it, hides changes without
an error, even if it is restored before anything reads the stream. The rows of the
catalogs tell: each has an OID, and the id of the transaction that wrote it (``xmin``).
Both differ after a change that was undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..decoding.notation import split_name
from ..options import CdcOptions
from ..postgres.catalog import Postgres
from ..state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A table in the publication.

    ``mark`` differs after each change of what is published. ``partitions`` has the
    transaction that attached each partition, by OID. ``keys`` are the columns of the key
    where each row has a record; otherwise it is empty.
    """

    table_id: int
    mark: str
    partitions: Mapping[str, str]
    keys: tuple[str, ...] = ()


def published_tables(postgres: Postgres, options: CdcOptions) -> dict[str, Published]:
    """Return the followed tables that are in the publication.

    Raises:
        CdcError, Interrupted
    """
    # A table of a schema that is published as a whole depends on its schema since it is in it.
    schemas = (
        "(SELECT concat(s.oid, '/', s.xmin, '/', (SELECT d.xmin FROM pg_depend d WHERE d.objid = c.oid AND "
        "d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND d.refclassid = 'pg_namespace'::regclass)) "
        "FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = n.oid)"
        if postgres.server_version >= 150_000
        else "NULL"
    )
    rows = postgres.rows(
        "SELECT n.nspname, c.relname, c.oid::bigint, concat_ws(' ', p.oid, p.xmin, "  # noqa: S608
        "(SELECT string_agg(concat(r.oid, '/', r.xmin), ',' ORDER BY r.oid) FROM pg_publication_rel r "
        "WHERE r.prpubid = p.oid AND (r.prrelid = c.oid OR r.prrelid IN "
        "(SELECT relid FROM pg_partition_ancestors(c.oid)))), "
        # A partition that is published through a table above it.
        "(SELECT string_agg(i.xmin::text, ',' ORDER BY i.inhrelid) FROM pg_partition_ancestors(c.oid) a "
        f"JOIN pg_inherits i ON i.inhrelid = a.relid), {schemas}), "
        "(SELECT jsonb_object_agg(i.inhrelid::bigint::text, i.xmin::text) FROM pg_partition_tree(c.oid) t "
        "JOIN pg_inherits i ON i.inhrelid = t.relid WHERE c.relkind = 'p' AND t.relid <> c.oid) "
        "FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname "
        "JOIN pg_namespace n ON n.nspname = t.schemaname "
        "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename "
        "WHERE p.pubname = %s",
        (options.publication,),
    )
    wanted = {split_name(name) for name in options.tables}
    return {
        f"{schema}.{table}": Published(
            table_id=table_id,
            mark=mark,
            partitions=partitions or {},
            keys=postgres.keys(schema, table) if options.has_record_per_row else (),
        )
        for schema, table, table_id, mark, partitions in rows
        if (schema, table) in wanted
    }


def interruption(name: str, known: TableState, now: Published | None, options: CdcOptions) -> str | None:
    """Return why changes may be missing since ``known`` was recorded, if they may."""
    publication = options.publication
    if now is None or now.table_id != known.table_id:
        return f"{name} was dropped, renamed, recreated or removed from publication {publication}"
    if known.published and known.published != now.mark:
        return (
            f"publication {publication} was altered or recreated, or {name} was removed from it and added again, "
            "so changes in between may be missing"
        )
    if known.keys and now.keys and known.keys != now.keys:
        return f"the key of {name} was ({', '.join(known.keys)}) and is ({', '.join(now.keys)})"
    again = [oid for oid, xid in known.partitions.items() if now.partitions.get(oid, xid) != xid]
    if again:
        return (
            f"a partition of {name} was detached and attached again, and its changes in between are missing"
        )
    return None


def attached_partitions(postgres: Postgres, known: TableState, now: Published) -> list[str]:
    """Return the partitions that are new since ``known`` and may have had rows before.

    Those are the ones that were not created as partitions.
    """
    new = [int(oid) for oid in now.partitions.keys() - known.partitions.keys()]
    if not new or not known.published:
        return []
    rows = postgres.rows(
        # The system columns of a table are written when it is created, and never again.
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_inherits i ON i.inhrelid = c.oid "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = -1 "
        "WHERE c.oid = ANY (%s::oid[]) AND i.xmin <> a.xmin ORDER BY 1",
        (new,),
    )
    return [name for (name,) in rows]
