"""Read ``payments`` and write ``invoices``, exactly once: what is written and what is acknowledged commit together.

Transactions need the HTTP listener: STELE_URL=http://HOST:8080.
"""

import os

from stele import Client

with (
    Client(os.environ.get("STELE_URL", "http://127.0.0.1:8080")) as client,
    client.group("invoicing", "payments", wait_s=1) as group,
):
    while True:
        # The beginning aborts what a crash left open; an exception in the block aborts it, too.
        with client.transaction("invoicing-1") as transaction:
            batch = group.poll()
            if batch is None:
                break
            with batch:
                for record in batch:
                    transaction.produce("invoices", record.value, key=record.key)
                    print("invoice for", record.key, flush=True)
                transaction.ack(batch)
