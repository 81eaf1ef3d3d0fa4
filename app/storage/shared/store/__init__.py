"""Object stores. Reading order:

- ``object_store``     the interface
- ``aws_profiles``     credentials of AWS that are in files
- ``obstore``, ``urls``   the stores of cloud providers, and directories for tests
- ``object_keys``      the names of objects
- ``backoff``          waits between repeated requests
- ``block_cache``      blocks of objects in memory
- ``check``            checks the store at a start
"""
