"""The table of a compacted topic as a mapping that follows its changes.

- ``core``                    records, positions and changes, without I/O
- ``async_table``, ``table``  the mappings
"""
