"""Objects, and the runs of batches in them. Reading order:

- ``object_format``    the format of an object
- ``sparse_index``, ``run_batches``   batches out of the bytes of a run
- ``run_builder``, ``merged_objects``   objects that replace runs
- ``object_reads``     reads that are repeated while the store fails
- ``loads_ahead``      several loads at a time
- ``run_reader``       finds batches by offset and by time
"""
