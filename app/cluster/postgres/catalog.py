"""The catalog that brokers share, in PostgreSQL (ADR-0046).

Each method is one transaction that can be repeated after a lost answer. A change of topics or
configurations raises a version in the same transaction, by which other brokers notice it.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from ...errors import StorageUnavailable
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.session import PostgresSession
from ..catalog import ConfigRecord, DeletedTopic, NamedProducer, TopicRecord

_T = TypeVar("_T")

# A batch stores the epoch as a signed 16-bit number.
_EPOCH_MAX = 2**15 - 1

_NOW_MS = "(extract(epoch FROM now()) * 1000)::bigint"
# Partitions forget a producer a day after its last batch (by default), and note when that was.
_IS_UNUSED = f"""
    n.begun_at_ms < {_NOW_MS} - %(kept_ms)s
    AND NOT EXISTS (SELECT FROM producer_state p WHERE p.producer_id = n.producer_id)
    AND NOT EXISTS (
        SELECT FROM named_producer_uses u WHERE u.producer_id = n.producer_id
        AND u.used_at >= now() - make_interval(secs => %(kept_ms)s / 1000.0)
    )
"""


class ChangeKind(StrEnum):
    """Kinds of versioned changes; the table ``changes`` has a row for each."""

    TOPICS = "topics"
    CONFIGS = "configs"
    CREDENTIALS = "credentials"
    ACLS = "acls"


def run(session: PostgresSession, what: str, work: Callable[[Connection], _T]) -> _T:
    """Run ``work`` in the session. Raises ``StorageUnavailable``."""
    try:
        return session.run(work)
    except PostgresUnavailable as error:
        raise StorageUnavailable(what, str(error)) from error


def changed(connection: Connection, kind: ChangeKind) -> None:
    """Raise the version of ``kind``; until the transaction ends, other changes of it wait."""
    connection.execute("UPDATE changes SET version = version + 1 WHERE kind = %s", (kind.value,))


def read_versions(connection: Connection) -> dict[ChangeKind, int]:
    """Return the version of each kind of changes."""
    rows = connection.execute("SELECT kind, version FROM changes").fetchall()
    known = {kind.value for kind in ChangeKind}
    return {ChangeKind(kind): version for kind, version in rows if kind in known}


def stored_once(connection: Connection, name: str, make: Callable[[], str]) -> str:
    """Return a value of the table ``numbers``; store ``make()`` if there is none."""
    query = "SELECT value FROM numbers WHERE name = %s"
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        connection.execute(
            "INSERT INTO numbers VALUES (%s, %s) ON CONFLICT (name) DO NOTHING", (name, make())
        )
        row = connection.execute(query, (name,)).fetchone()
    assert row is not None
    return str(row[0])


class PostgresCatalog:
    """Implements ``Catalog``. The session is the caller's, who closes it."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        return run(self._session, "a call to the catalog", work)

    def cluster_id(self) -> str:
        # Kafka's form: 16 random bytes in 22 URL-safe characters.
        def make() -> str:
            return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()

        return self._run(lambda connection: stored_once(connection, "cluster_id", make))

    # ── topics ──

    def topics(self) -> list[TopicRecord]:
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT name, topic_id, partitions, configs FROM topics ORDER BY name"
            ).fetchall()
        )
        return [
            TopicRecord(name=name, topic_id=topic_id, partitions=partitions, configs=json.loads(configs))
            for name, topic_id, partitions, configs in rows
        ]

    def create_topic(self, topic: TopicRecord) -> bool:
        def work(connection: Connection) -> bool:
            changed(connection, ChangeKind.TOPICS)
            connection.execute(
                "INSERT INTO topics (topic_id, name, partitions, configs) VALUES (%s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                (topic.topic_id, topic.name, topic.partitions, _json(topic.configs)),
            )
            # An earlier attempt, whose answer was lost, may have stored it.
            row = connection.execute("SELECT topic_id FROM topics WHERE name = %s", (topic.name,)).fetchone()
            if row is None or row[0] != topic.topic_id:
                return False
            _create_logs(connection, topic)
            return True

        return self._run(work)

    def update_topic(self, topic: TopicRecord, *, previous: TopicRecord | None = None) -> bool:
        def work(connection: Connection) -> bool:
            changed(connection, ChangeKind.TOPICS)
            row = connection.execute(
                "SELECT partitions, configs FROM topics WHERE topic_id = %s FOR UPDATE", (topic.topic_id,)
            ).fetchone()
            if row is None:
                return False
            stored = (row[0], json.loads(row[1]))
            expected = [(topic.partitions, dict(topic.configs))]
            if previous is not None:
                expected.append((previous.partitions, dict(previous.configs)))
                if stored not in expected:
                    return False
            connection.execute(
                "UPDATE topics SET partitions = %s, configs = %s WHERE topic_id = %s",
                (topic.partitions, _json(topic.configs), topic.topic_id),
            )
            _create_logs(connection, topic)
            return True

        return self._run(work)

    def delete_topic(self, topic_id: uuid.UUID) -> bool:
        def work(connection: Connection) -> bool:
            changed(connection, ChangeKind.TOPICS)
            deleted = connection.execute("DELETE FROM topics WHERE topic_id = %s", (topic_id,))
            # Together, so that no broker that dies in between leaves logs without a topic.
            connection.execute(
                "UPDATE logs SET deleted_at = now() WHERE topic_id = %s AND deleted_at IS NULL", (topic_id,)
            )
            return deleted.rowcount == 1

        return self._run(work)

    def deleted_topics(self) -> list[DeletedTopic]:
        """Return none: ``delete_topic`` has marked their logs."""
        return []

    def forget_deleted_topic(self, topic_id: uuid.UUID) -> None:
        """Do nothing: see ``deleted_topics``."""

    # ── configurations ──

    def configs(self) -> list[ConfigRecord]:
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT kind, entity, configs FROM configs ORDER BY kind, entity"
            ).fetchall()
        )
        return [
            ConfigRecord(kind=kind, entity=entity.decode(), configs=json.loads(configs))
            for kind, entity, configs in rows
        ]

    def set_configs(self, record: ConfigRecord) -> None:
        key = (record.kind, record.entity.encode())

        def work(connection: Connection) -> None:
            changed(connection, ChangeKind.CONFIGS)
            if record.configs:
                connection.execute(
                    "INSERT INTO configs VALUES (%s, %s, %s)"
                    " ON CONFLICT (kind, entity) DO UPDATE SET configs = EXCLUDED.configs",
                    (*key, _json(record.configs)),
                )
            else:
                connection.execute("DELETE FROM configs WHERE kind = %s AND entity = %s", key)

        self._run(work)

    # ── producers ──

    def next_producer_id_block(self, size: int) -> int:
        # An attempt whose answer is lost leaves a block unused.
        row = self._run(
            lambda connection: connection.execute(
                "INSERT INTO numbers VALUES ('next_producer_id', %s)"
                " ON CONFLICT (name) DO UPDATE SET value = (numbers.value::bigint + %s)::text RETURNING value",
                (str(1 + size), size),
            ).fetchone()
        )
        assert row is not None
        return int(row[0]) - size

    def begin_producer_version(self, name: str, version: int, *, fresh_id: int, now_ms: int) -> NamedProducer:
        key = name.encode()

        def work(connection: Connection) -> NamedProducer:
            # Times are those of the database; the caller gets them by its own clock.
            row = connection.execute(
                f"SELECT version, producer_id, epoch, %s - {_NOW_MS} + begun_at_ms FROM named_producers"
                " WHERE name = %s FOR UPDATE",
                (now_ms, key),
            ).fetchone()
            producer_id, epoch = fresh_id, 0
            if row is not None:
                begun, last_id, last_epoch, begun_at_ms = row
                if version <= begun:
                    return NamedProducer(
                        name=name,
                        version=begun,
                        producer_id=last_id,
                        epoch=last_epoch,
                        begun_at_ms=begun_at_ms,
                        is_resumed=True,
                    )
                if last_epoch < _EPOCH_MAX:
                    producer_id, epoch = last_id, last_epoch + 1
                connection.execute(
                    f"UPDATE named_producers SET version = %s, producer_id = %s, epoch = %s, begun_at_ms = {_NOW_MS}"
                    " WHERE name = %s",
                    (version, producer_id, epoch, key),
                )
            elif (
                connection.execute(
                    f"INSERT INTO named_producers VALUES (%s, %s, %s, %s, {_NOW_MS}) ON CONFLICT (name) DO NOTHING",
                    (key, version, producer_id, epoch),
                ).rowcount
                == 0
            ):
                # Another broker began the name a moment ago; its row is visible now.
                return work(connection)
            return NamedProducer(
                name=name,
                version=version,
                producer_id=producer_id,
                epoch=epoch,
                begun_at_ms=now_ms,
                is_resumed=False,
            )

        return self._run(work)

    def named_epochs(self) -> dict[int, int]:
        rows = self._run(
            lambda connection: connection.execute("SELECT producer_id, epoch FROM named_producers").fetchall()
        )
        return dict(rows)

    def forget_named_producers(self, *, now_ms: int, kept_ms: int, last_uses: Mapping[int, int]) -> list[int]:
        def work(connection: Connection) -> list[int]:
            # A name that is locked is being used. The second statement sees what was committed before the lock.
            idle = connection.execute(
                f"SELECT name FROM named_producers n WHERE {_IS_UNUSED} ORDER BY producer_id FOR UPDATE SKIP LOCKED",
                {"kept_ms": kept_ms},
            ).fetchall()
            forgotten = connection.execute(
                f"DELETE FROM named_producers n WHERE name = ANY (%(names)s) AND {_IS_UNUSED} RETURNING producer_id",
                {"kept_ms": kept_ms, "names": [name for (name,) in idle]},
            ).fetchall()
            connection.execute(
                "DELETE FROM named_producer_uses u WHERE NOT EXISTS"
                " (SELECT FROM named_producers n WHERE n.producer_id = u.producer_id)"
            )
            return [producer_id for (producer_id,) in forgotten]

        return self._run(work)

    def close(self) -> None:
        """Leave the session open: users and access rules share it."""


def _json(configs: Mapping[str, str]) -> str:
    # ASCII, so NUL is an escape sequence.
    return json.dumps(dict(configs))


def _create_logs(connection: Connection, topic: TopicRecord) -> None:
    """Create the logs of the topic that do not exist; together with it, so that no broker needs to."""
    connection.execute(
        "INSERT INTO logs (topic_id, part) SELECT %s, part FROM generate_series(0, %s - 1) AS part"
        " WHERE NOT EXISTS (SELECT FROM logs l WHERE l.topic_id = %s AND l.part = part.part)"
        " ORDER BY part ON CONFLICT (topic_id, part) DO NOTHING",
        (topic.topic_id, topic.partitions, topic.topic_id),
    )
