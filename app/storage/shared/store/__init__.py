"""Object stores. Reading order:

- ``objects``          the interface
- ``aws_profiles``     credentials of AWS that are in files
- ``object_stores``, ``store_urls``   the stores of cloud providers, and directories for tests
- ``object_keys``      the names of objects
- ``backoff``          waits between repeated requests
- ``block_cache``      blocks of objects in memory
- ``store_check``      checks the store at a start
"""
