"""Objects, and the runs of batches in them. Reading order:

- ``object_format``    the format of an object
- ``sparse_index``, ``batches``   batches out of the bytes of a run
- ``builder``, ``merged_objects``   objects that replace runs
- ``object_reads``     reads that are repeated while the store fails
- ``loads_ahead``      several loads at a time
- ``reader``           finds batches by offset and by time
"""
