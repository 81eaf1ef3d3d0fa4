"""Produce records and read them as rows of an Iceberg table, which the broker writes: see docs/iceberg.md.

It needs the extra ``iceberg``, and the files of the warehouse must be on this machine or in a bucket.
"""

from __future__ import annotations

import os
import time

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from stele import Client, NewRecord

URL = os.environ.get("STELE_URL", "http://127.0.0.1:8080")
TOPIC = "readings"
CONFIGS = {"stele.iceberg.mode": "key_value", "stele.iceberg.commit.interval.ms": 1000}


def main() -> None:
    with Client(URL) as client:
        client.ensure_topic(TOPIC, partitions=1, configs=CONFIGS)
        receipts = client.produce_many(TOPIC, [NewRecord(b"%d" % n, key=b"kitchen") for n in range(100)])
    # With logins, also token="API key".
    catalog = load_catalog("stele", type="rest", uri=f"{URL}/iceberg")
    table = wait_for(catalog, max(receipt.offset for receipt in receipts))
    # Pandas, Polars, DuckDB and Arrow read it as well.
    rows = table.scan(row_filter="offset < 50").to_arrow()
    print(f"{rows.num_rows} of the first 50 records are rows of {'.'.join(table.name())}")


def wait_for(catalog: Catalog, offset: int) -> Table:
    """Wait until the newest snapshot has a record."""
    while True:
        try:
            table = catalog.load_table(("stele", TOPIC))
            if any(table.scan(row_filter=f"offset = {offset}").plan_files()):
                return table
        except NoSuchTableError:
            pass
        time.sleep(0.2)


if __name__ == "__main__":
    main()
