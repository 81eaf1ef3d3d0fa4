"""The newest record of each key of a compacted partition. Reading order:

- ``newest_offsets``  the offsets of the newest records, sorted, 8 bytes for each
- ``remembered_offsets``  those that were computed last
- ``key_scan``        the keys of a segment, read from its log
- ``key_index``       the file beside a sealed segment that has the last offset of each key in it
- ``growing_keys``    hashes of keys and their last offsets in memory
- ``segment_keys``    the same of one segment in memory, growing with it
- ``table_scan``      which records of a partition are the newest of their keys, in bounded memory
- ``partition_keys``  the key indexes of a partition: built, looked up, merged

Nothing here touches the event loop; ``key_reader`` beside this package does.
"""
