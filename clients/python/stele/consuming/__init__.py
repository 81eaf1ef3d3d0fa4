"""Consumers: ``core`` keeps positions (no I/O), ``async_consumer`` and ``consumer`` fetch."""
