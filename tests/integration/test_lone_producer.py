"""A producer that waits for each ``acks=all`` answer, and a broker that is killed: nothing that was acked is lost.

Its syncs are made on the event loop if the disk is quick, in space ahead of the records.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from stele import Client
from stele.broker_process import run_broker

from app.storage.disk.files import RealFiles
from app.storage.inspection.dump_and_verify import verify_partition

RECORDS = 600
VALUE_BYTES = 200


def needs_space_ahead(directory: Path) -> None:
    """Skip the test where the file system gives no space."""
    file = RealFiles().open(directory / "probe", create=True)
    try:
        file.allocate(0, 4096)
    except OSError as error:
        pytest.skip(f"the file system of {directory} has no fallocate ({error}): set TMPDIR to one that has")
    finally:
        file.close()


def test_what_was_acked_in_space_ahead_of_records_survives_a_kill(tmp_path: Path) -> None:
    needs_space_ahead(tmp_path)
    data = tmp_path / "data"
    log = data / "orders-0" / f"{0:020d}.log"
    values = [b"%0*d" % (VALUE_BYTES, number) for number in range(RECORDS)]
    with run_broker(data_dir=data) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic("orders", partitions=1)
            for value in values:
                client.produce("orders", value, acks="all")
        whole = log.stat().st_size
        assert log.read_bytes().endswith(bytes(64)), "there is space after the records"
        assert verify_partition(log.parent).problems == []
        broker.kill()
        broker.restart()
        assert log.stat().st_size < whole, "the start has cut it"
        with Client(broker.binary_url) as client:
            receipt = client.produce("orders", b"after", acks="all")
            assert receipt.offset == RECORDS
            assert [record.value for record in client.fetch("orders").records] == [*values, b"after"]
    end = log.read_bytes()[-len(b"after") - 1 :]
    assert end.startswith(b"after"), "a shutdown leaves nothing after the last record"
    verified = verify_partition(log.parent)
    assert (verified.problems, verified.records) == ([], RECORDS + 1)
