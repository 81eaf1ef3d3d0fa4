"""Share the work of a topic: start this program several times.

Each process gets batches of its own. A batch whose block ends with an exception is redelivered, and a record that
has failed too often goes to the dead-letter topic.
"""

import signal

from stele import Client

stopping = False


def stop(*_: object) -> None:
    global stopping
    stopping = True


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, stop)

with (
    Client() as client,
    client.group(
        "billing", "orders", wait_s=1, on_error="redeliver", dead_letter_topic="orders.dead"
    ) as group,
):
    while not stopping:
        batch = group.poll()
        if batch is None:
            continue
        with batch:
            for record in batch:
                print(record.partition, record.offset, record.value, flush=True)
