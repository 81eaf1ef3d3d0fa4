"""Search and follow records, independently of a protocol; a listener encodes the results.

In reading order: ``filters`` (which records match), ``searching`` (a scan over
existing records), ``tail_reads``, ``tailing`` (shared reads of tails; records as they are appended), ``table`` (the newest
record per key of a compacted topic), ``table_batches`` (the same as batches, for clients
that decode them), ``positions`` (offsets and times as requests write them).
"""
