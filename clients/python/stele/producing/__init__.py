"""Producers: ``lane`` decides (no I/O), ``async_producer`` and ``producer`` act."""
