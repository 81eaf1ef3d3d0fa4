"""Changes of PostgreSQL that ``stele cdc`` brings to a broker which is lost and restored."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path

from stele import Client
from stele.cdc import state as state_of
from stele.cdc.log_transaction import committed_position
from stele.cdc.options import CdcOptions
from stele.cdc.records.events import Position
from stele.testing import BrokerProcess

from load.postgres_server import PostgresServer
from tests.support.cdc import CdcProcess, Replay

_TABLE = "CREATE TABLE rows (id int PRIMARY KEY, n int)"
_ROWS = 3
_PAUSE_S = 0.02


class ChangeCapture:
    """A table that transactions change one after the other, and the connector that follows it.

    Each inserts ``_ROWS`` rows and updates one, so a table shows up to which transaction it is whole.
    """

    def __init__(self, pg: PostgresServer, log: Path, rng: random.Random) -> None:
        pg.run(_TABLE)
        self._pg = pg
        log.touch()
        self._log = log
        self._rng = rng
        # The row that each transaction has updated.
        self._updated: list[int] = []
        self._options = CdcOptions(dsn=pg.dsn, tables=("rows",))
        self._is_over = threading.Event()
        self._writing: threading.Thread | None = None
        self._cdc: CdcProcess | None = None

    @property
    def copied_again(self) -> int:
        """How often the connector has said that it copies the table, because changes are missing."""
        return self._log.read_text().count("copied again: public.rows")

    def begin(self, broker: BrokerProcess) -> None:
        """Return when the connector has caught up with all transactions of before; others follow until ``end``."""
        self._cdc = CdcProcess(self._pg, broker.binary_url, self._log, "--tables", "rows")
        self._cdc.start()
        self._cdc.await_confirmed()
        self._is_over.clear()
        self._writing = threading.Thread(target=self._write)
        self._writing.start()

    def _write(self) -> None:
        with closing(self._pg.connect()) as connection, connection.cursor() as cursor:
            while not self._is_over.wait(_PAUSE_S):
                first = len(self._updated) * _ROWS + 1
                updated = self._rng.randint(1, first + _ROWS - 1)
                values = ", ".join(f"({number}, 0)" for number in range(first, first + _ROWS))
                cursor.execute(f"INSERT INTO rows VALUES {values}")
                cursor.execute("UPDATE rows SET n = n + 1 WHERE id = %s", (updated,))
                connection.commit()
                self._updated.append(updated)

    def end(self) -> None:
        """End the transactions, and kill the connector."""
        self._is_over.set()
        if self._writing is not None:
            self._writing.join()
        if self._cdc is not None:
            self._cdc.kill()

    def check(self, broker: BrokerProcess) -> int:
        """Compare the topic with the transactions up to the stored position; return how many changes it has.

        Raises:
            AssertionError: changes are missing, there twice, or not whole.
        """
        with Client(broker.binary_url) as client:
            table = state_of.load(client, self._options.state_topic).tables.get("public.rows")
            position = committed_position(client, self._options.positions_topic)
        if table is None or table.copy != "done":
            # A copy becomes visible in parts; the connector begins it once more.
            return 0
        replay = Replay(broker.binary_url, self._options.topic_of("public", "rows"))
        replay.read_all()
        rows = {row["id"]: row["n"] for row in replay.table().values()}
        last = max(rows, default=0) // _ROWS
        expected = dict.fromkeys(range(1, last * _ROWS + 1), 0)
        for updated in self._updated[:last]:
            expected[updated] += 1
        assert rows == expected, f"the changes up to transaction {last} are not those of the table"
        commits = [
            Position.parse((headers["event_id"] or b"").decode()).commit_lsn
            for headers in (dict(record.headers) for record in replay.records)
            if headers["operation"] in (b"c", b"u")
        ]
        stored = 0 if position is None else position.commit_lsn
        assert stored == max(commits, default=0), (
            f"the position is {position}, and the topic ends at {max(commits)}"
        )
        return len(replay.records)
