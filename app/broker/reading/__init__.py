"""From a fetch request to records. Reading order:

- ``fetch``            the request and its result
- ``decoded_bytes``    how much may be unpacked at the same time
- ``unread_responses``   how much may be sent and not read at the same time
- ``large_batches``    large records, copied in several turns of the event loop
- ``visible_batches``  hides markers and aborted transactions
- ``record_counts``    how many records of a batch follow an offset, across holes
- ``partition_reader``   fetch, waits and offsets
- ``keyed_reading``    compacted topics by key
- ``tail_subscriptions``   which partitions of a followed topic have new records
"""
