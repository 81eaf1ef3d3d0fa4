"""Files, threads and time for calls that wait for a disk. Reading order:

- ``files``            the only module that opens, syncs and renames files
- ``whole_files``      small files, read and replaced as a whole
- ``linux_calls``      calls of Linux that Python's library does not have
- ``disk_threads``     threads for calls that wait for a disk; ``fine_timer``   a timer for microseconds
- ``kept_space``       space that is kept back for work that frees space
- ``byte_rate``, ``pace``   a limit on bytes per second; how work in a thread makes room for the event loop
- ``interval``         how often something is done, which can change meanwhile
"""
