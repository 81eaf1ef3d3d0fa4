"""The files of a partition. Reading order:

- ``offset_index``, ``time_index``   the sparse indexes, in Kafka's layout
- ``transaction_index``   the aborted transactions of a segment, in Kafka's layout
- ``space_ahead``      how much space a segment gets ahead of its records
- ``indexes``, ``segment``   one ``.log`` with its two indexes: state, append, sealing
- ``partition_files``  the files of a partition, by name
- ``remote_segments``  segments whose log is in a bucket alone
- ``scan``             walks the batches of a file, past corrupt ranges
- ``loader``           loading a segment at a start, or from its log alone
- ``reader``           how a fetch finds a batch, by offset and by time
- ``single_read``      the same for most reads, with one read of the file
- ``age``, ``newest_time``   how old records are, whatever timestamps producers choose
- ``open_segments``    how many sealed segments stay open for readers
- ``open_transactions``   which transactions are open, from batches and markers
"""
